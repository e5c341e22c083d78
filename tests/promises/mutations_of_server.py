"""Mutations of the HTTP server."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_SIGNED = "tests/server/test_inbound.py::test_only_what_is_signed_now_and_byte_for_byte_is_accepted"
_NO_ID = (('    return f"key-{hashed(identity', '    return None and f"key-{hashed(identity'),)


OF_SERVER = [
    Mutation(
        "tests/server/test_oidc.py::test_only_what_the_issuer_signed_for_this_server_now_is_accepted",
        "a token for another server of the same issuer is accepted",
        (
            (
                'options={"require": ["exp", "iss", "aud", settings.who_claim]}',
                'options={"verify_aud": False, "require": ["exp", "iss", "aud", settings.who_claim]}',
            ),
        ),
    ),
    Mutation(
        "tests/server/test_api.py::test_a_stream_ends_with_its_token",
        "the token of a stream that is never silent is not looked at again",
        (("if not coming.done() or loop.time() - checked_s >= BEAT_S:", "if not coming.done():"),),
    ),
    Mutation(
        "tests/server/test_links.py::test_a_get_never_decides_and_one_post_does",
        "a link that is opened decides",
        (
            (
                """        frame, token = self.frame(request), request.path_params["token"]
        asked = await self._asked(token)
        return _page(""",
                """        frame, token = self.frame(request), request.path_params["token"]
        asked = await self._asked(token)
        if asked.open and asked.question is not None:
            link = asked.link
            who = Identity(link.by, frozenset({"resolve"}), link.tenant, via="link")
            await acts.resolve(self.desk, who, link.saga_id, str(asked.question["step_id"]), link.option)
        return _page(""",
            ),
        ),
        quick=True,
    ),
    Mutation(
        "tests/server/test_links.py::test_a_link_of_a_saga_that_is_gone_does_nothing_to_another_with_its_id",
        "the identity of the saga is not compared",
        (("    if not hmac.compare_digest(await identity_of_saga(engine, saga_id), identity):", "    if False:"),),
    ),
    Mutation(
        "tests/server/test_inbound.py::test_a_callback_of_a_saga_that_is_gone_does_nothing_to_another_with_its_id",
        "the identity of the saga is not compared",
        (("    if not hmac.compare_digest(await identity_of_saga(engine, saga_id), identity):", "    if False:"),),
    ),
    Mutation(
        "tests/server/test_links.py::test_a_second_tap_reads_who_was_first",
        "who answered first is not looked for",
        (("first = await views.first_answer(engine, link.saga_id, link.question_id)", "first = None"),),
    ),
    Mutation(
        "tests/server/test_links.py::test_an_altered_link_is_none",
        "the signature of a link is not checked",
        (
            ("if not whole or not self._fits(", "if not whole or (False and not self._fits("),
            ('"link", text):', '"link", text)):'),
        ),
    ),
    Mutation(
        "tests/server/test_links.py::test_a_page_acts_for_its_own_link_only",
        "a form acts without the key of a page",
        (("if not self._links.fits_page(", "if False and not self._links.fits_page("),),
    ),
    Mutation(
        "tests/server/test_links.py::test_an_expired_link_decides_nothing",
        "a link lives for ever",
        (
            (
                "return self.link.ends_ms <= machine_clock.time_ns() // 1_000_000",
                "return self.link.ends_ms <= 0 * machine_clock.time_ns()",
            ),
        ),
    ),
    Mutation(
        "tests/server/test_api.py::test_a_submission_that_is_repeated_is_the_same_saga",
        "an idempotency key stands for whatever is sent with it",
        (("if claim.request != request:", "if False:"),),
    ),
    Mutation(
        "tests/server/test_keys.py::test_each_request_acts_once_under_its_key",
        "what a request makes is not called after its key",
        (('Keyed(f"key-{hashed(*whose, request)}", repeated)', 'Keyed("", repeated)'),),
    ),
    Mutation(
        "tests/server/test_keys.py::test_an_amend_that_was_read_is_not_added_again",
        "the store forgets the keys of messages that were read",
        (("'SISMEMBER', posted, key) == 1", "'SISMEMBER', posted, key) == 2"),),
    ),
    Mutation(
        "tests/server/test_process.py::test_a_server_that_is_killed_before_it_answers",
        "an idempotency key chooses no id",
        _NO_ID,
    ),
    Mutation(
        "tests/server/test_api.py::test_of_two_answers_the_second_learns_who_was_first",
        "an answer that was posted at the same time is not looked for",
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
        (("since=after + 1", "since=max(after, 0)"),),
    ),
    Mutation(
        "tests/server/test_api.py::test_each_operation_needs_its_scope",
        "any token may do anything",
        (("desk.require(request, self.scope) if", "desk.identity(request) if"),),
    ),
    Mutation(
        "tests/server/test_api.py::test_tenants_see_their_own_sagas_alone",
        "all tenants have the server's namespace",
        (("        if not tenant:\n", "        if True:\n"),),
    ),
    Mutation(_SIGNED, "any signature fits", (("    if not any(fits):\n", "    if False:\n"),)),
    Mutation(
        _SIGNED,
        "a signature fits for ever",
        (("    if abs(now - int(stamp)) > tolerance_s:\n", "    if False:\n"),),
    ),
    Mutation(
        "tests/listener/test_doors.py::test_connections_that_wait_make_room",
        "a connection that sends nothing keeps its place",
        (
            (
                "        if not others:\n            return False",
                "        if others or not others:\n            return False",
            ),
        ),
    ),
    Mutation(
        "tests/listener/test_doors.py::test_what_comes_ahead_of_its_turn_is_bounded",
        "all that comes ahead of its turn is held",
        (("len(self.conn.trailing_data[0]) > self.bounds.ahead_bytes", "not self.bounds.ahead_bytes"),),
    ),
    Mutation(
        "tests/listener/test_answers.py::test_an_answer_that_is_not_read_is_cut_off",
        "a client that reads nothing is waited for",
        (("self._unread - self.transport.get_write_buffer_size() < _LEAST_READ", "self.transport.is_closing()"),),
        hangs=True,
    ),
    Mutation(
        "tests/server/test_attacks.py::test_requests_that_wait_are_counted",
        "requests that wait are not counted",
        (("desk.place(desk.waits, identity) if incoming.wait_s else nullcontext()", "nullcontext()"),),
    ),
    Mutation(
        "tests/server/test_quotas.py::test_no_way_begins_more_than_may_be_live",
        "the quota is not asked where a saga is journalled",
        (("        if counted:\n            await self.quota.admit(submission.saga_id, submission.plan)\n", ""),),
        only="trigger",
    ),
    Mutation(
        "tests/server/test_quotas.py::test_two_servers_count_together",
        "a saga that has its place and no journal yet is not counted",
        (("                    use.pending[saga_id] = now_ms\n", "                    pass\n"),),
    ),
    Mutation(
        "tests/server/test_quotas.py::test_the_smallest_quota_of_servers_that_run_holds",
        "the quota of the server that began last holds",
        (
            (
                "            servers[owner] = (live_sagas, steps_per_s)",
                "            servers = {owner: (live_sagas, steps_per_s)}",
            ),
        ),
    ),
    Mutation(
        "tests/server/test_quotas.py::test_a_server_that_states_no_quota_changes_none",
        "a server that states no quota states that there is none",
        (("    return quota if said else None", "    return quota"),),
    ),
    Mutation(
        "tests/doors/test_views.py::test_each_view_shows_each_fact_alike",
        "a call that happened shows the error of an earlier attempt",
        (("    error = None if _over(state, index, direction) else call.error", "    error = call.error"),),
        only="no_stale_error",
    ),
    Mutation(
        "tests/server/test_quotas.py::test_what_undoes_is_never_refused",
        "an undo is counted like any other saga",
        (("counted and submission.undoes is None", "counted"),),
    ),
    Mutation(
        "tests/server/test_turns.py::test_no_turn_takes_long_whatever_a_request_brings",
        "large work is done on the loop",
        (("        return await _aside(work, allowance)", "        return work()"),),
    ),
    Mutation(
        "tests/execution/test_aside.py::test_the_work_of_a_saga_is_bound_by_no_allowance_of_a_caller",
        "a saga's own work is bound to what its caller is allowed",
        (("    context.run(_ALLOWED.set, _UNBOUNDED)\n", ""),),
    ),
    Mutation(
        "tests/gateway/test_engine.py::test_no_turn_takes_long_whatever_an_agent_writes",
        "a plan that was read counts as small",
        (("return await aside(work) if is_large(*parts) else work()", "return work()"),),
    ),
    Mutation(
        "tests/child_sagas/test_child_templates.py::test_templates_that_are_large_together_are_refused_before_they_are_put_together",
        "templates are put together whatever comes of it",
        (("        if not self._has_room(found, path):", "        if False:"),),
    ),
]
