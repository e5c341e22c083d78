"""What a client may have the engine do: each operation once, with nothing of the door where it is asked.

It imports so little that a help text can be made from it.
"""
