"""Mutations of sealing, rotation, erasing and redaction."""

from __future__ import annotations

from tests.promises.breaking import Mutation

OF_PRIVACY = [
    Mutation(
        "tests/privacy/test_sealing.py::test_markers_are_nowhere_in_a_server",
        "the summary of a saga is stored as it is",
        (("None if entry.summary is None else _sealed_summary(saga_id, key, entry.summary)", "entry.summary"),),
    ),
    Mutation(
        "tests/privacy/test_sealing.py::test_markers_are_nowhere_in_a_server",
        "hooks are told what a question of a sealed saga is about",
        (("sealed=is_sealed(used)", "sealed=False"),),
    ),
    Mutation(
        "tests/privacy/test_sealing.py::test_markers_are_nowhere_in_a_server",
        "a span has the name of a sealed plan",
        (("names=not is_sealed(store)", "names=True"),),
    ),
    Mutation(
        "tests/privacy/test_sealing.py::test_markers_are_nowhere_in_a_server",
        "a span has the answer that a plan offers",
        (("if decision not in _DECISIONS:", "if not decision:"),),
    ),
    Mutation(
        "tests/privacy/test_sealing.py::test_markers_are_nowhere_in_a_server",
        "the log of a sealed store has the messages of exceptions",
        (("withholding(is_sealed(store) and not escalation.payloads)", "withholding(False)"),),
    ),
    Mutation(
        "tests/privacy/test_sealing.py::test_changed_and_swapped_payloads_are_refused",
        "a record opens at any place of its saga",
        (("% (saga_id.encode(), seq, shown)", "% (saga_id.encode(), 0, shown)"),),
    ),
    Mutation(
        "tests/kill/test_sealed.py::test_killed_anywhere_on_a_sealed_store",
        "only the process that began a saga has its key",
        (("self._hidden(saga_id, creation.digest), key=key.wrapped)", "self._hidden(saga_id, creation.digest))"),),
        only="keyed",
    ),
    Mutation(
        "tests/kill/test_sealed.py::test_a_worker_without_the_key_leaves_a_killed_ones_saga",
        "a missing key looks like damaged data",
        (("raise missing(name, **context)", "raise broken(where)"),),
    ),
    Mutation(
        "tests/kill/test_sealed.py::test_a_rotation_killed_anywhere",
        "a key is refused before everything is wrapped anew",
        (("await _restate(store, keyring, retiring=marks)", "await _restate(store, keyring, retired=marks)"),),
    ),
    Mutation(
        "tests/privacy/test_rotation.py::test_a_wrapping_that_is_put_back_is_refused_by_name",
        "a retired key still opens what it wraps",
        (("mark_of(name, fingerprint) in retired", "mark_of(name, fingerprint) == retired"),),
    ),
    Mutation(
        "tests/privacy/test_sealing.py::test_erasing",
        "the wrapped key stays where it was",
        (("call('HDEL', key, 'key', 'messages')", "call('HDEL', key, 'messages')"),),
    ),
    Mutation(
        "tests/privacy/test_leaving.py::test_what_holds_copies_of_an_erased_saga_is_named_and_erased_with_it",
        "an erasure says nothing of the forks and children that hold copies",
        (("if left and not family:", "if len(left) > 99 and not family:"),),
    ),
    Mutation(
        "tests/privacy/test_leaving.py::test_an_erased_saga_stays_as_long_as_another_one_needs_it",
        "with its key a saga loses what it is tied to",
        (('**({"ties": dict(ties)} if ties else {})', "**{}"),),
    ),
    Mutation(
        "tests/kill/test_erase.py::test_an_erasure_that_is_killed_is_ended_by_its_repeat",
        "what was erased before is not looked into when an erasure is repeated",
        (('said = tombstone.get("ties") or {}\n        ties =', "said = {}\n        ties ="),),
    ),
    Mutation(
        "tests/privacy/test_leaving.py::test_an_archive_that_has_an_erased_saga_is_named_each_time",
        "only the files of sagas that are gone are named",
        (("for saga_id, path in files if saga_id in stored]", "for saga_id, path in files if saga_id in found.gone]"),),
    ),
    Mutation(
        "tests/privacy/test_redacted.py::test_a_redacted_field_reaches_no_store",
        "an output is journalled as it came",
        (('return outcome._replace(output=self._redaction.value("output", outcome.output))', "return outcome"),),
    ),
    Mutation(
        "tests/privacy/test_redacted.py::test_a_binding_that_would_hold_one_is_refused",
        "only the whole output counts",
        (("part == _ANY or found is None or part in found", "part == found"),),
    ),
]
