"""The pure core: what is happening to one saga, without clock, dice or I/O."""
