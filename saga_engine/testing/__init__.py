"""For our tests and our users': fault injection, an outside world, a cutting proxy, a store conformance suite."""
