"""Mutations of the HTTP server."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_ACTS = "saga_engine/server/acts.py"
_SIGNATURES = "saga_engine/server/signatures.py"
_SIGNED = "tests/server/test_inbound.py::test_only_what_is_signed_now_and_byte_for_byte_is_accepted"
_KEYS = "saga_engine/server/keys.py"
_NO_ID = (('    return f"key-{hashed', '    return None and f"key-{hashed'),)

OF_SERVER = [
    Mutation(
        "tests/server/test_api.py::test_a_submission_that_is_repeated_is_the_same_saga",
        "an idempotency key stands for whatever is sent with it",
        _KEYS,
        (("if claim.request != request:", "if False:"),),
        quick=True,
    ),
    Mutation(
        "tests/server/test_keys.py::test_each_request_acts_once_under_its_key",
        "what a request makes is not called after its key",
        _KEYS,
        (('Keyed(f"key-{hashed(*whose, request)}", repeated)', 'Keyed("", repeated)'),),
    ),
    Mutation(
        "tests/server/test_keys.py::test_an_amend_that_was_read_is_not_added_again",
        "the store forgets the keys of messages that were read",
        "saga_engine/stores/lua/post.lua",
        (("'SISMEMBER', posted, key) == 1", "'SISMEMBER', posted, key) == 2"),),
    ),
    Mutation(
        "tests/server/test_process.py::test_a_server_that_is_killed_before_it_answers",
        "an idempotency key chooses no id",
        _ACTS,
        _NO_ID,
    ),
    Mutation(
        "tests/server/test_api.py::test_of_two_answers_the_second_learns_who_was_first",
        "an answer that was posted at the same time is not looked for",
        "saga_engine/runtime/messages.py",
        (
            (
                '        if message.kind == "resolve":\n            await _require',
                "        if False:\n            await _require",
            ),
        ),
    ),
    Mutation(
        "tests/server/test_api.py::test_a_stream_is_resumed_without_a_gap_or_a_repetition",
        "a stream begins with the record that the client has",
        "saga_engine/server/streams.py",
        (("since=after + 1", "since=max(after, 0)"),),
    ),
    Mutation(
        "tests/server/test_api.py::test_each_operation_needs_its_scope",
        "any token may do anything",
        "saga_engine/server/operation.py",
        (("desk.require(request, self.scope) if", "desk.identity(request) if"),),
    ),
    Mutation(
        "tests/server/test_api.py::test_tenants_see_their_own_sagas_alone",
        "all tenants have the server's namespace",
        "saga_engine/server/desk.py",
        (("        if not tenant:\n", "        if True:\n"),),
    ),
    Mutation(_SIGNED, "any signature fits", _SIGNATURES, (("    if not any(fits):\n", "    if False:\n"),)),
    Mutation(
        _SIGNED,
        "a signature fits for ever",
        _SIGNATURES,
        (("    if abs(now - int(stamp)) > tolerance_s:\n", "    if False:\n"),),
    ),
]
