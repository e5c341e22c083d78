"""WHAT STANDS BEFORE A CALL: policy, memory, resources, breaker, bulkhead and rate, one file each, and their chain."""
