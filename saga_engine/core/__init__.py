"""The pure core: the state of one saga and its next records, without clock, randomness or I/O."""
