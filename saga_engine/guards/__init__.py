"""CHECKS BEFORE A CALL.

Policy, de-duplication, resources, breaker, bulkhead and rate, one file each, and their chain.
"""
