"""``python -m saga_engine`` is ``saga``."""

from saga_engine.cli import main

if __name__ == "__main__":
    main()
