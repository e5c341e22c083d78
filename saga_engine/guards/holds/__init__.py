"""THE RESOURCES THAT SAGAS HOLD (``hold="saga"``): from the first call of a saga that names one until its end.

``family`` tells which sagas are one holder, ``holding`` takes, waits and gives back, ``listing`` shows what is held and
takes it away for an operator. The state is that of ``guard_hold.lua``. No other folder knows of it: ``locks`` asks
``Holding`` before it queues a call, and whoever puts a process together tells ``Holds`` of the end of each saga.
"""
