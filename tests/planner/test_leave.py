"""What every model may use in a plan, what needs leave, and how it asks for leave."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from dev.benchmarks.eval_planner import load_cases
from saga_engine.errors import PlannerFailed, PlannerNeeds
from saga_engine.plan import compute, decimals
from saga_engine.plan.model import load_plan
from saga_engine.plan.notices import is_notice, notice_kind
from saga_engine.planner import features
from saga_engine.planner.features import FEATURES, NEEDS, SAFE, not_allowed
from saga_engine.planner.planning import Planning
from saga_engine.planner.prompting import prompt_for
from saga_engine.planner.settings import PlannerSettings
from saga_engine.ports import PlanRequest
from saga_engine.testing.scripted import ScriptedPlanner
from tests.plan.catalog import NUMBER, TEXT, Catalog, closed, declare
from tests.planner.scenes import step

LINES = {
    "type": "object",
    "properties": {
        "lines": {"type": "array", "items": closed(["sku", "price"], sku=TEXT, price=NUMBER)},
        "mail": TEXT,
    },
    "required": ["lines", "mail"],
}
SHOP = Catalog(
    declare("orders.get", closed(["order"], order=TEXT), effect="read", output_schema=LINES),
    declare(
        "stock.reserve", closed(["sku"], sku=TEXT), undo="stock.release", output_schema=closed(["id"], id=TEXT)
    ),
    declare("stock.release", closed(["id"], id=TEXT), tolerates_absence=True),
    declare("mail.send", closed(["to", "text"], to=TEXT, text=TEXT)),
    declare("bank.transfer", closed(["amount"], amount=NUMBER)),
    declare("mails.delete", closed(["subject"], subject=TEXT)),
)  # fmt: skip
GOAL = "Reserve the lines of order o-7, tell a@b.example, and transfer the sum."
GET = step("get", "orders.get", {"order": "o-7"})
RESERVE = step("all", "stock.reserve", {"sku": "$item.sku"}, each="$output.step_get.lines")
SUM = {"step_id": "sum", "compute": {"sum": "$output.step_get.lines", "of": "$item.price"}}
PAY = step("pay", "bank.transfer", {"amount": "$output.step_sum"}, kind="pivot")
TELL = step("tell", "mail.send", {"to": "a@b.example", "text": "{$end.status}"})
SURE = {"step_id": "sure", "ask": {"question": "Pay {$output.step_sum}?", "options": ["yes", "no"]}}
PAID = {"tool": "bank.transfer", "params": {"amount": 5000}}
LATE: dict[str, Any] = {"step_id": "w", "wait": {"event": "paid", "key": "o-7", "timeout_s": 9, "on_late": PAID}}
#: One plan with every part that needs no leave.
SAFE_PLAN = {
    "steps": [
        GET,
        {**RESERVE, "failed_when": [{"value": "$output.step_all.id", "op": "==", "to": "0"}]},
        {**step("more", "stock.reserve", {"sku": "o-7"}), "when": [{"value": "$output.step_sum", "op": ">", "to": 9}]},
        PAY,
    ],
    "finally": [TELL],
}
SAFE_PLAN["steps"].insert(2, SUM)


async def planned(*answers: Any, **settings: Any) -> tuple[Any, ScriptedPlanner]:
    planner = ScriptedPlanner(*answers)
    specs = [spec for name in SHOP.names() if (spec := SHOP.spec(name)) is not None]
    return await Planning(planner, PlannerSettings(**settings)).plan(GOAL, specs, catalog=SHOP), planner


async def test_safe_parts_need_no_leave() -> None:
    """A computation, a condition, an output that means failure, a list of calls with an undo, a notice at the end."""
    made, _ = await planned(SAFE_PLAN)
    assert made.rounds == 1
    used = {
        name for each in made.plan.steps for name in ("compute", "when", "failed_when", "each") if getattr(each, name)
    }
    assert used | {"finally"} == set(SAFE)
    assert [each.tool for each in made.plan.finally_] == ["mail.send"]


@pytest.mark.parametrize(
    ("answer", "path", "name"),
    [
        ({"steps": [GET, {**PAY, "kind": None, "params": {"amount": "$item.price"}, "each": "$output.step_get.lines"}]}, "$.steps[1].each", "each"),
        ({"steps": [GET], "finally": [step("pay", "bank.transfer", {"amount": 1})]}, "$.finally[0].tool", "finally"),
        ({"steps": [GET], "finally": [step("del", "mails.delete", {"subject": "old"})]}, "$.finally[0].tool", "finally"),
        ({"steps": [GET], "finally": [{**TELL, "fallback": [PAID]}]}, "$.finally[0].fallback[0].tool", "finally"),
        ({"steps": [GET, {**RESERVE, "fallback": [PAID]}]}, "$.steps[1].each", "each"),
        ({"steps": [GET, SUM, SURE]}, "$.steps[2].ask", "ask"),
        ({"steps": [GET, {"step_id": "w", "wait": {"event": "paid"}}]}, "$.steps[1].wait", "wait"),
        ({"steps": [GET, LATE]}, "$.steps[1].wait.on_late.tool", "irreversible"),
        ({"steps": [GET, {"step_id": "w", "sleep": 5}]}, "$.steps[1].sleep", "sleep"),
        ({"steps": [{**GET, "on_error": "continue"}]}, "$.steps[0].on_error", "on_error"),
        ({"steps": [GET, {**RESERVE, "each": {"of": "$output.step_get.lines", "on_error": "collect"}}]}, "$.steps[1].each", "on_error"),
        ({"steps": [{**PAY, "kind": "irreversible", "params": {"amount": 1}}]}, "$.steps[0].kind", "irreversible"),
    ],
)  # fmt: skip
async def test_the_rest_needs_leave(answer: dict[str, Any], path: str, name: str) -> None:
    """It goes back with the word that asks for leave; with leave it passes this rule, and so it is with each alone."""
    with pytest.raises(PlannerFailed) as failed:
        await planned(answer, rounds=1, may_use=("wait",) if answer["steps"][-1] is LATE else ())
    found = [each for each in failed.value.context["problems"] if each["code"] == "feature-not-allowed"]
    assert [each["path"] for each in found] == [path]
    assert f'{{"needs": ["{name}"]}}' in found[0]["hint"]
    assert f"--may-use {name}" in (failed.value.hint or ""), "the person who asked reads how to allow it"
    stripped = {
        **answer,
        "steps": [{key: value for key, value in each.items() if value is not None} for each in answer["steps"]],
    }
    allowed = (name, "wait") if answer["steps"][-1] is LATE else (name,)
    assert [*not_allowed(load_plan(stripped), allowed, SHOP)] == []


@pytest.mark.parametrize(
    ("params", "code", "param"),
    [
        ({"to": "a@b.example", "text": "{{end.status}}"}, "binding-lookalike", "text"),
        ({"to": "a@b.example", "text": "x {$output.step_all[0].id}"}, "finally-invalid", "text"),
        ({"to": "a@b.example", "text": "$secret.PIN"}, "secret-not-offered", "text"),
    ],
)
async def test_the_steps_at_the_end_obey_the_same_rules(params: dict[str, Any], code: str, param: str) -> None:
    """Text that resembles a binding, a missing default, a secret that was not offered: told with its place."""
    answer = {"steps": [GET, RESERVE], "finally": [step("tell", "mail.send", params)]}
    with pytest.raises(PlannerFailed) as failed:
        await planned(answer, rounds=1)
    found = [(each["code"], each["path"]) for each in failed.value.context["problems"]]
    assert (code, f"$.finally[0].params.{param}") in found


async def test_a_model_asks_for_leave() -> None:
    """``needs`` ends the question with what is needed and the options that allow it; nothing else is lost."""
    with pytest.raises(PlannerNeeds) as needed:
        await planned({"needs": ["ask", "reads"]})
    assert needed.value.needs == ["ask", "reads"]
    assert "--may-use ask --read orders.get" in (needed.value.hint or "")
    assert needed.value.context["transcript"][0]["came"] == "needs"


@pytest.mark.parametrize("said", [{"needs": ["compute"]}, {"needs": ["loops"]}, {"needs": [7]}, {"needs": ["ask"]}])
async def test_what_is_allowed_or_unknown_is_no_need(said: dict[str, Any]) -> None:
    """A part that every model has, one that there is not, and one that was allowed: the model plans instead."""
    made, planner = await planned(said, SAFE_PLAN, may_use=("ask",))
    assert made.rounds == 2
    (problem,) = planner.asked[1].repair.problems
    assert (problem.code, problem.path) == ("field-invalid", "$.needs")


def test_the_prompt_names_what_could_be_allowed_in_one_line() -> None:
    """Each part that needs leave, and lookups if there are none, with a few words."""
    request = PlanRequest(GOAL, [], may_use=("wait",))
    line = next(one for one in prompt_for(request, "tool").system.splitlines() if one.startswith("Not allowed here: "))
    named = set(re.findall(r"`(\w+)` \(", line))
    assert named == {*NEEDS} - {"wait"}
    assert "`reads`" not in features.told_others(PlanRequest(GOAL, [], reads=("orders.get",)))


def test_the_prompt_has_every_operation_with_its_options() -> None:
    """All operations of ``compute`` stand in one line, with the modes of rounding."""
    line = next(one for one in prompt_for(PlanRequest(GOAL, []), "tool").system.splitlines() if "`compute`" in one)
    for name, (_, options) in compute.OPERATIONS.items():
        assert f"`{name}`" in line
        assert all(f"`{option}`" in line or f"{option} (" in line for option in options), name
    assert len(compute.OPERATIONS) == 19
    assert all(mode in line for mode in decimals.ROUNDING)


def twenty_tools() -> list[Any]:
    """The first tools of three catalogues of the evaluation."""
    found = {name: case.tools.spec(name) for case in load_cases("travel,retail,hr") for name in case.tools.names()}
    return [spec for spec in found.values() if spec is not None][:20]


def tokens(text: str) -> int:
    """An upper bound of what tokenizers of today's models make of a text of JSON and English.

    A word counts once for each seven letters, a run of signs or digits once for each three; on these prompts that is
    seven percent more than ``o200k_base`` and ``cl100k_base`` count.
    """
    found = re.findall(r" ?[A-Za-z]+|\d+|[^\sA-Za-z0-9]+|\n+", text)
    return sum(-(-len(each) // (7 if each.strip().isalpha() else 3)) for each in found)


@pytest.mark.parametrize("mode", ["tool", "text"])
def test_a_request_with_twenty_tools_is_small(mode: Any) -> None:
    """At most 5,000 tokens with all that needs no leave: the prompt, the tools and the schema of the answer."""
    asked = prompt_for(PlanRequest(GOAL, twenty_tools()), mode)
    beside = "" if mode == "text" else json.dumps(asked.schema)
    assert tokens(asked.system + asked.question + beside) <= 5_000


@pytest.mark.parametrize(
    ("name", "fields", "kind"),
    [
        ("mail.send", ["to", "text"], "mail"),
        ("send_email", ["to", "subject", "body"], "mail"),
        ("sms.send", ["phone", "text"], "message"),
        ("chat_post_message", ["channel", "text"], "message"),
        ("customers.notify", ["customer", "message"], "notice"),
        ("send_confirmation", ["recipient", "text"], "message"),
        ("mails.delete", ["subject"], ""),
        ("ledger.post", ["amount", "text"], ""),
        ("bank.transfer", ["to", "text"], ""),
        ("mail.send", ["template_id"], ""),
        ("alarm.arm", ["zone"], ""),
        ("enviar_correo", ["destinatario", "asunto", "cuerpo"], "mail"),
        ("courriel.envoyer", ["destinataire", "contenu"], "mail"),
        ("nachricht_senden", ["an", "inhalt"], "message"),
        ("kunde.benachrichtigen", ["kunde", "nachricht"], "notice"),
        ("notificar_cliente", ["cliente", "texto"], "notice"),
        ("enviar_mensagem", ["para", "mensagem"], "message"),
        ("inviaEmail", ["destinatario", "oggetto"], "mail"),
        ("发送邮件", ["收件人", "正文"], "mail"),
        ("メール送信", ["宛先", "件名"], "mail"),
        ("通知_客户", ["客户", "内容"], "notice"),
        ("메일보내기", ["받는사람", "내용"], "mail"),
        ("删除邮件", ["主题"], ""),
        ("nachricht_loeschen", ["betreff"], ""),
        ("nachricht_löschen", ["betreff"], ""),
        ("notificação.enviar", ["cliente", "conteúdo"], "notice"),
        ("mensaje_borrar", ["asunto"], ""),
        ("money.send", ["to", "note"], ""),
        ("gift.send", ["to", "note", "amount"], ""),
        ("alerts.close", ["note"], ""),
        ("beitrag.einziehen", ["text"], ""),
    ],
)
def test_a_notice_is_known_by_its_words(name: str, fields: list[str], kind: str) -> None:
    """A tool that only tells somebody something has a word for it in its name, and a parameter for what is said."""
    spec = declare(name, closed([], **dict.fromkeys(fields, TEXT)))
    assert notice_kind(spec) == (kind or ("mail" if name == "mail.send" and fields == ["template_id"] else ""))


@pytest.mark.parametrize(
    ("description", "fields", "kind"),
    [
        ("Sends an e-mail to a customer.", ["to", "text"], "mail"),
        ("Verschickt eine SMS an den Kunden.", ["kunde", "text"], "message"),
        ("Envía un correo al cliente.", ["cliente", "texto"], "mail"),
        ("Envoie un courriel au client.", ["client", "texte"], "mail"),
        ("Envia uma notificação ao cliente.", ["cliente", "texto"], "notice"),
        ("Invia un messaggio al cliente.", ["cliente", "testo"], "message"),
        ("向客户发送短信。", ["客户", "内容"], "message"),
        ("顧客にメールを送信します。", ["宛先", "本文"], "mail"),
        ("Notifies the customer.", ["customer", "message"], "message"),
        ("Books a room and sends a confirmation mail.", ["to", "text"], ""),
        ("Sends an e-mail and deletes the account.", ["to", "text"], ""),
        ("Sends money to a customer.", ["to", "text"], ""),
        ("向客户退款并发送邮件。", ["客户", "内容"], ""),
        ("Sends an e-mail to a customer.", ["to", "text", "amount"], ""),
    ],
)
def test_a_description_names_a_notice_and_gives_no_leave(description: str, fields: list[str], kind: str) -> None:
    """A review says what a description says, if that is all that it says; leave needs the words of the name."""
    spec = replace(declare("contact", closed([], **dict.fromkeys(fields, TEXT))), description=description)
    assert notice_kind(spec) == kind
    assert not is_notice(spec)


def test_every_part_of_the_table_is_one_thing() -> None:
    """Each part is safe or needs leave; one with a limit is both."""
    assert set(SAFE) | set(NEEDS) == {*FEATURES, "reads"}
    assert {name for name in SAFE if FEATURES[name].limit} == set(SAFE) & set(NEEDS)
