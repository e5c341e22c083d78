"""The gate: which rule decides, what limits count, what an approval is good for."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saga_engine.core.effects import Ask, Blocked, Done, ErrorInfo, NotDone, Unknown
from saga_engine.errors import SettingInvalid, StoreUnavailable
from saga_engine.policy.gate import Gate
from saga_engine.policy.rules import EXPIRES_S, Policy, Rule
from saga_engine.stores import open_store
from tests import tiers
from tests.policy.world import a_key_call, look, pay, policy_of, says, word

FAILED = ErrorInfo("failed", "it failed")


def rule(name="the rule", verdict="deny", **options):
    return Rule(name=name, verdict=verdict, **options)


def when(*conditions):
    return [dict(zip(("param", "op", "value"), condition, strict=False)) for condition in conditions]


# --- which rule decides ------------------------------------------------------------------------------------------


async def test_the_first_rule_that_matches_decides():
    """Order is meaning: what stands first is asked first, and the default last."""
    small, large = when(("amount", "<", 10)), when(("amount", ">=", 10))
    first = Policy([rule("a", "allow", when=small), rule("b", "deny"), rule("c", "allow", when=large)])
    assert await says(first, {"amount": 5}) == "allow"
    assert await says(first, {"amount": 50}) == "deny"
    turned = Policy([rule("b", "deny"), rule("a", "allow", when=small)])
    assert await says(turned, {"amount": 5}) == "deny"
    for default, expected in (("allow", "allow"), ("deny", "deny"), ("ask", "ask")):
        assert await says(Policy([rule(when=small)], default), {"amount": 50}) == expected


async def test_all_conditions_have_to_hold():
    """Conditions of a rule are joined by 'and', also those that ask the file system or the network."""
    both = policy_of(("amount", ">", 10), ("url", "host", "evil.example"))
    assert await says(both, {"amount": 50, "url": "https://evil.example"}) == "deny"
    assert await says(both, {"amount": 5, "url": "https://evil.example"}) == "allow"
    assert await says(both, {"amount": 50, "url": "https://example.com"}) == "allow"


async def test_the_network_is_asked_only_about_calls_that_all_else_speaks_of():
    """A condition that can be checked without waiting is checked first, wherever it stands."""
    asked = []

    async def noting(host, port):
        asked.append(host)
        return ["93.184.216.34"]

    conditions = when(("url", "host", "example.com"), ("amount", ">", 10))
    policy = Policy([rule(when=conditions)], resolver=noting)
    assert await says(policy, {"amount": 5, "url": "https://example.com"}) == "allow"
    assert not asked
    assert await says(policy, {"amount": 50, "url": "https://example.com"}) == "deny"
    assert asked == ["example.com"]


async def test_tools_and_directions():
    """A rule speaks of the tools that its globs fit, case-sensitively, and of the direction that it names."""
    policy = Policy([rule(tools=["pa?", "wire_*"], direction="forward"), rule("r2", tools=["LOOK"])])
    assert await says(policy, {}) == "deny"
    assert await says(policy, {}, direction="compensate") == "allow"
    assert await says(policy, {}, made=look) == "allow"
    assert await says(Policy([rule(direction="compensate")]), {}, direction="compensate") == "deny"
    assert await says(Policy([rule()]), {}, direction="compensate") == "deny"


CHOSEN = {"direction": "compensate", "backward": True, "chosen": True}


@pytest.mark.parametrize(
    ("rules", "default", "expected"),
    [
        ([rule(direction="forward")], "allow", "deny"),
        ([rule(direction="compensate")], "allow", "deny"),
        ([rule("a", "allow", direction="compensate"), rule("b", "ask", direction="forward")], "allow", "ask"),
        ([rule("a", "allow", tools=["*"], direction="compensate"), rule("b", "ask")], "allow", "ask"),
        ([rule("a", "allow", tools=["pay"], direction="compensate"), rule("b", "ask")], "allow", "allow"),
        ([rule("a", "allow", direction="forward")], "deny", "deny"),
        ([rule("a", "allow", direction="forward"), rule("b", "allow", direction="compensate")], "deny", "allow"),
        ([rule("a", "allow")], "deny", "allow"),
        ([], "allow", "allow"),
    ],
)
async def test_a_backward_call_that_the_author_chose_is_authorized_in_both_directions(rules, default, expected):
    """The stricter verdict counts; that all undos are allowed does not allow whatever a plan calls an undo."""
    assert await says(Policy(rules, default), {"amount": 5}, **CHOSEN) == expected


async def test_rules_for_forward_calls_leave_the_registered_undo_alone():
    """An undo that the plan's author did not choose is authorized backward only."""
    policy = Policy([rule(direction="forward")])
    assert await says(policy, {}, direction="compensate", backward=True) == "allow"


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [("deny", "allow", "deny"), (None, "allow", "ask"), ("allow", "ask", "ask"), ("allow", "allow", "allow")],
)
async def test_the_check_is_asked_in_both_directions_about_a_chosen_call(forward, backward, expected):
    """A check that looks at the direction cannot be passed by a rollback either."""
    answers = {"forward": forward, "compensate": backward}
    policy = Policy([], "ask", check=lambda request: answers[request.direction])
    assert await says(policy, {}, **CHOSEN) == expected


@pytest.mark.parametrize("operators", ["allow", "ask", "deny"])
@pytest.mark.parametrize("nearer", ["allow", "ask", "deny"])
@pytest.mark.parametrize("by", ["rule", "default"])
async def test_a_policy_is_only_tightened_by_another(operators, nearer, by):
    """The stricter verdict of both counts, whatever rules and defaults say: deny before ask before allow."""

    def made(name, verdict):
        return Policy([rule(name, verdict)]) if by == "rule" else Policy((), verdict)

    policy = made("a", operators).tightened(made("b", nearer))
    assert await says(policy, {}) == max(operators, nearer, key=["allow", "ask", "deny"].index)


async def test_an_approval_has_to_be_good_for_both_policies():
    """Each rule that asks is answered; the second question is asked when the first is approved."""
    policy = Policy([rule("a", "ask")]).tightened(Policy([rule("b", "ask")]))
    gate = Gate(policy, None)
    first = await gate.authorize(pay, {}, a_key_call())
    second = await gate.authorize(pay, {}, a_key_call(approved=first.digest))
    assert (first.rule, second.rule) == ("a", "b")
    assert await gate.authorize(pay, {}, a_key_call(approved=second.digest)) is None


@pytest.mark.parametrize("denies", ["a rule", "a limit", "the default"])
async def test_a_question_of_one_policy_hides_no_denial_of_another(store, denies):
    """The operator asks and the project denies: nobody is asked about a call that is not made, approved or not."""
    project = {
        "a rule": Policy([rule("b", "deny", when=when(("amount", ">", 10)))]),
        "a limit": Policy([rule("b", "deny", max_calls=0)]),
        "the default": Policy((), "deny"),
    }[denies]
    for policy in (Policy([rule("a", "ask")]).tightened(project), project.tightened(Policy([rule("a", "ask")]))):
        gate = Gate(policy, store)
        blocked = await gate.authorize(pay, {"amount": 50}, a_key_call())
        assert word(blocked) == "deny"
        assert blocked.rule == ("default" if denies == "the default" else "b")
    asks = Gate(Policy([rule("a", "ask")]), store)
    [approval] = await approved(asks, {"amount": 50}, a_key_call())
    assert word(await gate.authorize(pay, {"amount": 50}, a_key_call(approved=approval))) == "deny"


async def test_after_a_question_its_own_policy_says_no_more(store):
    """The check and the default of the policy that asks are for calls that no rule of it decides."""
    words = []
    policy = Policy([rule("a", "ask")], "deny", check=lambda request: words.append(request) or "deny")
    assert await says(policy, {}) == "ask"
    assert words == []


def test_private_addresses_are_those_that_both_policies_allow():
    """A nearer file opens no network that the operator left closed."""
    both = Policy(allow_private=["10.0.0.0/8", "::1"]).tightened(Policy(allow_private=["10.1.0.0/16", "192.168.0.1"]))
    assert both.allow_private == ("10.1.0.0/16",)
    with pytest.raises(SettingInvalid, match="two rules have it"):
        Policy([rule("a")]).tightened(Policy([rule("a")]))


async def test_a_probe_is_no_call():
    """It asks about a call that was let through, and tells whether it happened: nothing keeps it back."""
    assert await says(Policy([rule()], "deny"), {}, direction="probe") == "allow"


def test_what_a_policy_concerns(store):
    """A tool of which no rule can say anything but yes costs nothing."""
    of = lambda *rules, **options: Gate(Policy(list(rules), **options), store)  # noqa: E731
    assert not of().concerns("pay")
    assert not of(rule(tools=["wire"])).concerns("pay")
    assert not of(rule("a", "allow"), rule("b", "allow", tools=["p*"])).concerns("pay")
    assert of(rule(tools=["p*"])).concerns("pay")
    assert of(rule("a", "allow", when=when(("x", "exists"))), rule("b", "ask")).concerns("pay")
    assert of(default="deny").concerns("pay")
    assert of(check=lambda request: None).concerns("pay")


# --- what people read --------------------------------------------------------------------------------------------


async def test_a_denial_says_which_rule_and_why(store):
    """The record names the rule, the call, what could not be checked, and the rule's own message."""
    policy = Policy([rule("large payments", when=when(("amount", ">", 10)), message="ask the treasurer")])
    verdict = await Gate(policy, store).authorize(pay, {"amount": "1e9"}, a_key_call())
    assert isinstance(verdict, Blocked)
    assert verdict.rule == "large payments"
    assert verdict.error.error_code == "policy_denied"
    assert verdict.error.retryable is False
    for part in ("pay", '{"amount":"1e9"}', "amount: a text that is no plain decimal number", "ask the treasurer"):
        assert part in verdict.error.message
    assert verdict.error.suggestion


async def test_a_question_says_what_is_asked(store):
    """It stands as long as the rule says, and carries the digest of the exact call."""
    policy = Policy([rule("pay", "ask", expires_s=60), rule("other", "ask")])
    verdict = await Gate(policy, store).authorize(pay, {"amount": 5}, a_key_call())
    assert isinstance(verdict, Ask)
    assert (verdict.error.error_code, verdict.rule, verdict.expires_s) == ("approval_required", "pay", 60)
    assert len(verdict.digest) == 64
    default = await Gate(Policy(default="ask"), store).authorize(pay, {}, a_key_call())
    assert (default.rule, default.expires_s) == ("default", EXPIRES_S)


@pytest.mark.parametrize("verdict", ["deny", "ask"])
async def test_secrets_are_checked_but_not_shown(store, verdict):
    """The real value decides; what is recorded has its marker, and no reason that could repeat it."""
    secret, params = "https://hunter2.invalid", {"token": "https://hunter2.invalid", "amount": 5}
    masked = {"token": "$secret.TOKEN", "amount": 5}
    conditions = when(("token", "not-host", "example.com"))
    gate = Gate(Policy([rule("r", verdict, when=conditions)]), store)
    said = await gate.authorize(pay, params, a_key_call(masked=masked))
    assert word(said) == verdict
    assert "hunter2" not in repr(said)
    assert "$secret.TOKEN" in said.error.message
    by_value = policy_of(("token", "==", secret))
    assert word(await Gate(by_value, store).authorize(pay, params, a_key_call(masked=masked))) == "deny"


async def test_messages_are_bounded_and_printable(store):
    """Params come from a model: they cannot flood a record or drive a terminal."""
    said = await Gate(Policy(default="deny"), store).authorize(pay, {"x": "\x1b[2J" + "y" * 100_000}, a_key_call())
    assert len(said.error.message) < 1000
    assert said.error.message.isprintable()


# --- approvals ---------------------------------------------------------------------------------------------------


async def approved(gate, params, call, made=pay):
    """The digests that a person has to approve, one after the other, until the call passes."""
    digests = []
    while isinstance(verdict := await gate.authorize(made, params, call), Ask):
        assert verdict.digest not in digests, "the same question is asked twice"
        digests.append(verdict.digest)
        call = call._replace(approved=verdict.digest)
    assert verdict is None
    return digests


async def test_an_approval_is_for_the_exact_call(store):
    """Another saga, step, direction, tool, other params or another rule: all of them are other calls."""
    gate = Gate(Policy(default="ask"), store)
    params, call = {"to": "bob", "amount": 10}, a_key_call()
    [digest] = await approved(gate, params, call)
    good = call._replace(approved=digest, attempt=2, epoch=9)
    assert await gate.authorize(pay, params, good) is None
    assert await gate.authorize(pay, {"amount": 10, "to": "bob"}, good) is None
    changed = [
        (pay, {"to": "bob", "amount": 1_000_000}, good),
        (pay, {"to": "bob", "amount": "10"}, good),
        (pay, {"to": "bob", "amount": 10, "more": None}, good),
        (look, params, good),
        (pay, params, good._replace(step_id="2")),
        (pay, params, good._replace(saga_id="other")),
        (pay, params, good._replace(direction="compensate")),
        (pay, params, good._replace(approved="")),
        (pay, params, good._replace(approved=digest[:-1])),
        (pay, params, good._replace(approved=digest.upper())),
    ]
    for made, other, its_call in changed:
        assert isinstance(await gate.authorize(made, other, its_call), Ask)
    assert isinstance(await Gate(Policy([rule("r", "ask")]), store).authorize(pay, params, good), Ask)


async def test_an_approval_opens_one_rule_and_not_the_next(store):
    """Rules behind the one that was approved are still asked: a denial stays one."""
    gate = Gate(Policy([rule("a", "ask"), rule("b", "deny", when=when(("amount", ">", 10)))]), store)
    [_] = await approved(gate, {"amount": 5}, a_key_call())
    question = await gate.authorize(pay, {"amount": 50}, a_key_call())
    verdict = await gate.authorize(pay, {"amount": 50}, a_key_call(approved=question.digest))
    assert (word(verdict), verdict.rule) == ("deny", "b")


async def test_each_rule_that_asks_is_answered_once(store):
    """Several questions about one call come one after the other and come to an end."""
    policy = Policy([rule("a", "ask"), rule("b", "ask"), rule("c", "ask")], "ask", check=lambda request: "ask")
    gate = Gate(policy, store)
    assert len(await approved(gate, {"amount": 5}, a_key_call())) == 4
    [last] = [digest for digest in await approved(Gate(Policy([rule("b", "ask")]), store), {}, a_key_call())]
    short = Gate(Policy([rule("a", "ask", expires_s=60), rule("b", "ask")]), store)
    first = await short.authorize(pay, {}, a_key_call())
    second = await short.authorize(pay, {}, a_key_call(approved=first.digest))
    assert (second.rule, second.expires_s) == ("b", 60)
    # Who approved 'b' alone has not been asked about 'a'.
    both = Gate(Policy([rule("a", "ask"), rule("b", "ask")]), store)
    verdict = await both.authorize(pay, {}, a_key_call(approved=last))
    assert (word(verdict), verdict.rule) == ("ask", "a")


async def test_an_approval_does_not_outlive_a_change_of_the_secret_s_name(store):
    """Where there are secrets the digest is of their markers: it never depends on a value that must not be kept."""
    gate = Gate(Policy(default="ask"), store)
    call = a_key_call(masked={"token": "$secret.A"})
    one, two = [await gate.authorize(pay, {"token": token}, call) for token in ("first", "second")]
    three = await gate.authorize(pay, {"token": "first"}, call._replace(masked={"token": "$secret.B"}))
    assert one.digest == two.digest != three.digest


# --- the check ---------------------------------------------------------------------------------------------------


async def test_the_check_is_asked_after_the_rules():
    """Plain or a coroutine, it sees the call with real params and decides what no rule decided."""
    seen = []

    def plain(request):
        seen.append(request)
        return {"a": "allow", "d": "deny", "q": "ask"}.get(request.params.get("x"))

    async def slow(request):
        await asyncio.sleep(0)
        return plain(request)

    for check in (plain, slow):
        policy = Policy([rule("r", "deny", when=when(("x", "==", "never")))], "deny", check=check)
        assert [await says(policy, {"x": x}) for x in ("a", "d", "q", "none", "never")] == [
            *("allow", "deny", "ask", "deny", "deny")
        ]
        assert [request.params["x"] for request in seen] == ["a", "d", "q", "none"]
        assert (seen[0].tool, seen[0].effect, seen[0].saga_id, seen[0].direction) == ("pay", "write", "saga", "forward")
        seen.clear()
    first = Policy([rule("r", "allow")], "deny", check=lambda request: "deny")
    assert await says(first, {}) == "allow"


@pytest.mark.parametrize("word_of", ["yes", "", "ALLOW", True, 1, ["allow"], b"allow", object()])
async def test_a_check_that_gives_no_verdict_denies(word_of):
    """Only the three words are verdicts; truth is none."""
    assert await says(Policy(check=lambda request: word_of), {}) == "deny"


async def test_a_check_that_fails_denies(store, caplog):
    """What is not authorized is not called, and the failure's text, which may hold a secret, stays out of records."""

    def fails(request):
        raise ValueError(f"cannot read {request.params['token']}")

    gate = Gate(Policy(check=fails), store)
    said = await gate.authorize(pay, {"token": "hunter2"}, a_key_call(masked={"token": "$secret.T"}))
    assert (word(said), said.rule) == ("deny", "check")
    assert "hunter2" not in repr(said) + caplog.text
    assert "ValueError" in caplog.text
    await gate.authorize(pay, {"token": "known"}, a_key_call())
    assert "cannot read known" in caplog.text


# --- limits ------------------------------------------------------------------------------------------------------


async def made(gate, step, params=None, outcome=None, saga="saga", **changes):
    """Authorize a call and, if it passes, tell what came of it."""
    call = a_key_call(str(step), saga, **changes)
    verdict = await gate.authorize(pay, params or {}, call)
    if verdict is None:
        await gate.settled(pay, call, Done({}) if outcome is None else outcome)
    return word(verdict)


async def test_calls_are_counted_per_saga(store):
    """The rule speaks from the fourth call of a saga on; another saga starts anew."""
    gate = Gate(Policy([rule(max_calls=3, tools=["pay"])]), store)
    assert [await made(gate, step) for step in range(5)] == ["allow"] * 3 + ["deny"] * 2
    assert await made(gate, 0, saga="other") == "allow"
    assert await says(Policy([rule(max_calls=0)]), {}, store=store) == "deny"


async def test_counts_live_in_the_store(store):
    """A second process (a gate of its own on the same store) goes on counting where the first one stopped."""
    policy = Policy([rule(max_calls=3), rule("sum", max_sum={"param": "amount", "limit": 100})])
    one, two = Gate(policy, store), Gate(policy, store)
    assert [await made(gate, step, {"amount": 30}) for step, gate in enumerate((one, two, one, two, one))] == [
        *("allow", "allow", "allow", "deny", "deny")
    ]


async def test_a_sum_that_is_split_over_calls(store):
    """The call that would pass the limit is stopped, a smaller one that still fits is not."""
    gate = Gate(Policy([rule(max_sum={"param": "amount", "limit": 5000})]), store)
    amounts = [2000, "2000.00", 1000.01, 1000, 0.01, 0]
    assert [await made(gate, step, {"amount": amount}) for step, amount in enumerate(amounts)] == [
        *("allow", "allow", "deny", "allow", "deny", "allow")
    ]


async def test_a_sum_adds_all_values_of_a_call(store):
    """Wildcards are summed; a call without the param adds nothing; negative amounts make no room."""
    gate = Gate(Policy([rule(max_sum={"param": "items[*].price", "limit": 100})]), store)
    assert await made(gate, 1, {"items": [{"price": 40}, {"price": "40"}]}) == "allow"
    assert await made(gate, 2, {}) == "allow"
    assert await made(gate, 3, {"items": [{"price": -1000}]}) == "allow"
    assert await made(gate, 4, {"items": [{"price": -1000}, {"price": 30}]}) == "deny"
    assert await made(gate, 5, {"items": [{"price": 20}]}) == "allow"
    for step, items in enumerate(("5", [5], [[{"price": 5}]]), 6):
        assert await made(gate, step, {"items": items}) == "deny"


@pytest.mark.parametrize("amount", ["1e3", "10 ", True, None, [10], {"value": 10}, float("nan")])
async def test_an_amount_that_nobody_can_tell_passes_no_sum(store, amount):
    """It matches at once; and if a person lets it through, every later call of the saga is asked about, too."""
    gate = Gate(Policy([rule("r", "ask", max_sum={"param": "amount", "limit": 5000})]), store)
    if amount == amount:  # a digest cannot be made of what is no JSON, so nobody can approve it
        call = a_key_call()
        question = await gate.authorize(pay, {"amount": amount}, call)
        assert isinstance(question, Ask)
        assert await gate.authorize(pay, {"amount": amount}, call._replace(approved=question.digest)) is None
        assert await made(gate, 2, {"amount": 1}) == "ask"
    else:
        assert await made(gate, 1, {"amount": amount}) == "deny"


async def test_retries_and_resumes_count_once(store):
    """One entry for each key: a call that is made again, after a crash or after a failure, uses its own room."""
    policy = Policy([rule(max_calls=1, max_sum={"param": "amount", "limit": 100})])
    gate = Gate(policy, store)
    assert await made(gate, 1, {"amount": 100}, Unknown(FAILED)) == "allow"
    assert await made(gate, 1, {"amount": 100}, Unknown(FAILED), attempt=2) == "allow"
    assert await made(Gate(policy, store), 1, {"amount": 100}, attempt=3) == "allow"
    assert await made(gate, 2, {"amount": 0}) == "deny"


async def test_intent_first(store):
    """What a call uses is written before it is made: dying in the call does not forget it."""
    gate = Gate(Policy([rule(max_calls=1)]), store)
    assert await gate.authorize(pay, {}, a_key_call("1")) is None  # and never settled
    assert await made(Gate(Policy([rule(max_calls=1)]), store), 2) == "deny"


async def test_what_did_not_happen_is_taken_back(store):
    """A call that was certainly not made leaves its room to others; one that is in doubt does not."""
    gate = Gate(Policy([rule(max_calls=1)]), store)
    for outcome in (NotDone(FAILED), NotDone(FAILED, definite=True), Blocked(FAILED)):
        assert await made(gate, 1, outcome=outcome) == "allow"
        assert await made(gate, 2, outcome=outcome) == "allow"
    assert await made(gate, 1, outcome=Unknown(FAILED)) == "allow"
    assert await made(gate, 2) == "deny"


async def test_an_earlier_attempt_in_doubt_stays_counted(store):
    """'Not done' speaks of this attempt alone, unless the tool itself says it; whatever number the attempt has."""
    gate = Gate(Policy([rule(max_calls=1)]), store)
    assert await made(gate, 1, outcome=Unknown(FAILED)) == "allow"
    for attempt in (2, 1):
        assert await made(gate, 1, outcome=NotDone(FAILED), attempt=attempt) == "allow"
        assert await made(gate, 2) == "deny"
    assert await made(gate, 1, outcome=NotDone(FAILED, definite=True), attempt=3) == "allow"
    assert await made(gate, 2) == "allow"


async def test_a_call_that_is_not_made_counts_nothing(store):
    """Denied by a later rule, or asked about: nothing is written until a call is let through."""
    later = rule("later", "ask", when=when(("amount", ">", 10)))
    gate = Gate(Policy([rule(max_calls=1), later]), store)
    for step in range(3):
        assert await made(gate, step, {"amount": 50}) == "ask"
    assert await store.tally("the rule\nsaga", "saga") == {}
    assert await made(gate, 7, {"amount": 5}) == "allow"
    assert list(await store.tally("the rule\nsaga", "saga")) == ["saga:7:f:seed"]


async def test_an_approved_call_beyond_a_limit_is_counted(store):
    """A person may let the fourth call through; the fifth is asked about again."""
    gate = Gate(Policy([rule("r", "ask", max_calls=1)]), store)
    assert await made(gate, 1) == "allow"
    question = await gate.authorize(pay, {}, a_key_call("2"))
    assert await made(gate, 2, approved=question.digest) == "allow"
    assert await made(gate, 3, approved=question.digest) == "ask"
    assert len(await store.tally("r\nsaga", "saga")) == 2


async def test_only_what_a_rule_speaks_of_is_counted(store):
    """Conditions, globs, directions and the rules before it keep a call out of its count."""
    exempt = rule("exempt", "allow", when=when(("amount", "==", 0)))
    counted = rule(max_calls=1, direction="forward", when=when(("amount", "<", 100)))
    gate = Gate(Policy([exempt, counted]), store)
    assert [await made(gate, step, {"amount": amount}) for step, amount in enumerate((0, 0, 500, 500, 5, 5))] == [
        *("allow", "allow", "allow", "allow", "allow", "deny")
    ]
    assert await made(gate, 9, {"amount": 5}, direction="compensate") == "allow"


async def test_parallel_steps_do_not_share_the_last_room(store):
    """Of many calls of one saga at the same moment as many pass as there is room for."""
    gate = Gate(Policy([rule(max_calls=3, max_sum={"param": "amount", "limit": 50})]), store)
    words = await asyncio.gather(*(made(gate, step, {"amount": 10}) for step in range(20)))
    assert words.count("allow") == 3


async def test_a_cancelled_authorization_leaves_no_lock(store):
    """A saga that is cancelled while it waits does not keep its other steps waiting."""
    gate = Gate(Policy([rule(max_calls=3)]), store)
    lock = gate.lock("saga")
    await lock.acquire()
    waiting = asyncio.ensure_future(made(gate, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    lock.release()
    assert await made(gate, 2) == "allow"


class Broken:
    """A guard store that is out of reach at the given verbs."""

    def __init__(self, store, *verbs):
        self._store = store
        self._verbs = verbs

    def __getattr__(self, name):
        if name not in self._verbs:
            return getattr(self._store, name)

        async def out_of_reach(*_):
            raise StoreUnavailable("the store is out of reach")

        return out_of_reach


@pytest.mark.parametrize("verb", ["tally", "tally_set"])
async def test_a_limit_that_cannot_be_looked_up_lets_nothing_through(store, verb):
    """The error reaches the caller, who makes no call; a rule without a limit needs no store."""
    gate = Gate(Policy([rule(max_calls=3)]), Broken(store, verb))
    with pytest.raises(StoreUnavailable):
        await gate.authorize(pay, {}, a_key_call())
    assert not gate.lock("saga").locked()
    free = Gate(Policy([rule(when=when(("amount", ">", 10)))]), Broken(store, "tally", "tally_set"))
    assert await free.authorize(pay, {"amount": 1}, a_key_call()) is None


async def test_what_cannot_be_taken_back_stays_counted(store):
    """An outage after the call errs on the safe side."""
    broken = Broken(store)
    gate = Gate(Policy([rule(max_calls=1)]), broken)
    assert await gate.authorize(pay, {}, a_key_call("1")) is None
    broken._verbs = ("tally_set",)
    with pytest.raises(StoreUnavailable):
        await gate.settled(pay, a_key_call("1"), NotDone(FAILED))
    broken._verbs = ()
    assert await made(gate, 2) == "deny"


@settings(max_examples=tiers.examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.decimals(0, 60, places=2),
            st.sampled_from(["done", "not-done", "definite", "unknown", "crash"]),
        ),
        min_size=3,
        max_size=14,
    )
)
async def test_a_limit_against_a_model(calls):
    """Whatever happens to calls, what may have happened never passes the limits, and room is never lost."""
    outcomes = {
        "done": Done({}),
        "not-done": NotDone(FAILED),
        "definite": NotDone(FAILED, definite=True),
        "unknown": Unknown(FAILED),
    }
    opened = open_store("memory://")
    await opened.open()
    policy = Policy([rule(max_calls=3, max_sum={"param": "amount", "limit": 100})])
    gate = Gate(policy, opened.guard_store())
    held: dict[int, Decimal] = {}  # by step: the most that an attempt that may have happened was for
    for step, amount, end in calls:
        others = [value for other, value in held.items() if other != step]
        own = max(amount, held.get(step, Decimal(0)))
        fits = len(others) < 3 and sum(others) + own <= 100
        call = a_key_call(str(step))
        verdict = await gate.authorize(pay, {"amount": str(amount)}, call)
        assert (verdict is None) is fits
        if verdict is not None:
            continue
        before = held.get(step)
        held[step] = own
        if end == "crash":
            gate = Gate(policy, opened.guard_store())
            continue
        await gate.settled(pay, call, outcomes[end])
        if end == "definite" or (end == "not-done" and before is None):
            del held[step]
    await opened.close()
