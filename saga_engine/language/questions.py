"""What operators are asked, what they may answer, what that means and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from saga_engine.language import LANGUAGES, Fragment, under

QUESTIONS: Final[Fragment] = {
    "asks.in-doubt": ("did the call happen?", "该调用发生了吗？"),
    "asks.step-failed": ("the call was not done: how should the saga continue?", "该调用没有完成，saga 应如何继续？"),
    "asks.tool-changed": (
        "the tool no longer accepts the planned call: how should the saga continue?",
        "工具不再接受计划中的调用，saga 应如何继续？",
    ),
    "asks.undo-failed": ("its undo failed permanently: who undoes it?", "撤销永久失败，由谁来撤销？"),
    "asks.undo-in-doubt": ("did its undo happen?", "撤销发生了吗？"),
    "asks.undo-blocked": ("the policy refused its undo: who undoes it?", "策略拒绝了撤销，由谁来撤销？"),
    "asks.undo-missing": (
        "its effect remains and has no undo: who undoes it?",
        "其效果仍在且没有撤销方法，由谁来撤销？",
    ),
    "asks.drift": (
        "others may have changed the value: is it overwritten?",
        "该值可能已被别人改动，是否覆盖？",
    ),
    "asks.undo-unverified": (
        "its undo says that it was done, and what the step did is still there: who undoes it?",
        "撤销声称已完成，但步骤的结果仍在，由谁来撤销？",
    ),
    "asks.approval": ("may this call be made?", "是否允许进行该调用？"),
    "asks.compensation": (
        "a model proposes steps that compensate for it: may they run?",
        "模型建议了补偿步骤，是否允许执行？",
    ),
    "asks.session-failed": (
        "the agent of this session failed: is everything undone, or is the session kept?",
        "该会话的智能体失败了，全部撤销还是保留会话？",
    ),
    "asks.session-kept": (
        "the agent of this session failed, and the session is kept until its agent runs again",
        "智能体失败，会话将保留到它再次运行。",
    ),
    "asks.ask": ("the plan asks", "计划提问"),
    "asks.deferred": (
        "it waits until its tool is available again; no answer is needed",
        "等待工具恢复可用，无需答复。",
    ),
    "asks.finally": (
        "a step of the plan's 'finally' was not done, or is in doubt; the saga's end does not change",
        "计划的收尾步骤没有完成或存疑，saga 的结局不变。",
    ),
    "asks.hold-overdue": (
        "the saga holds a resource for longer than its tool says; no answer is needed",
        "saga 持有资源的时间超过工具声明的上限，无需答复。",
    ),
    "asks.forked": (
        "this session is a fork, and is kept until its agent runs again",
        "该会话是一个分叉，将保留到其智能体再次运行。",
    ),
    "asks.other": ("{kind}: how should the saga continue?", "{kind}：saga 应如何继续？"),
    "about.step": ("step {step}", "步骤 {step}"),
    "about.undo": ("the undo of step {step}", "步骤 {step} 的撤销"),
    "about.call": ("call {n} of {of} of {about}", "{about}（第 {n} 个调用，共 {of} 个）"),
    "about.tool": ("{about} ({tool})", "{about}（{tool}）"),
    "expires.session-failed": ("everything is undone unless answered before", "未答复则全部撤销"),
    "expires.session-kept": ("everything is undone unless the agent runs again before", "智能体未再运行则全部撤销"),
    "expires.ask": ("the saga goes on without an answer at", "未答复则 saga 继续"),
    "expires.other": ("denied unless answered before", "未答复则拒绝"),
    "line.goal": ("goal: {goal}", "目标：{goal}"),
    "line.suggestion": ("suggestion: {text}", "建议：{text}"),
    "line.schema": ("the answer is a JSON value that fits {schema}", "答复是符合 {schema} 的 JSON 值"),
    "line.keyless": (
        "this tool sends no key: look for the call at {when}",
        "该工具不发送键：请按这个时间查找该调用：{when}",
    ),
    "line.keyless.params": (
        "this tool sends no key: look for these params at {when}",
        "该工具不发送键：请按这个时间查找这些参数：{when}",
    ),
    "line.proposed": ("the proposed steps:", "建议的步骤："),
    "line.until": ("{then} {when}", "截至 {when}：{then}"),
    "line.answers": ("answer with one of:", "用以下之一答复："),
    "line.then": ("then: {then}", "随后：{then}"),
    "answer.happened": ("It happened", "已发生"),
    "answer.not-happened": ("It did not happen", "未发生"),
    "answer.retry": ("Try again", "重试"),
    "answer.undone": ("Undone by hand", "已手工撤销"),
    "answer.accept": ("Accept as it is", "接受现状"),
    "answer.approve": ("Approve", "批准"),
    "answer.deny": ("Deny", "拒绝"),
    "answer.undo": ("Undo", "撤销"),
    "answer.keep": ("Keep", "保留"),
    "answer.close": ("Close", "关闭"),
    "answer.ask-again": ("Ask the model again", "再次询问模型"),
    "answer.answer": ("Answer", "答复"),
    "answer.expired": ("No answer in time", "逾期未答复"),
    "answer-means.happened": (
        "The call took effect. The saga goes on with its output.",
        "调用已生效，saga 使用其输出继续。",
    ),
    "answer-means.not-happened": ("The call had no effect.", "调用没有生效。"),
    "answer-means.retry": ("The call is made again, under the same idempotency key.", "以相同的幂等键再次调用。"),
    "answer-means.retry-keyless": (
        "The call is made again. This tool is sent no key: it may happen twice.",
        "再次发起该调用。该工具不接收键：可能发生两次。",
    ),
    "then.then": ("Then: {what}", "随后：{what}"),
    "then.calls": ("calls {tool} (step {step})", "调用 {tool}（步骤 {step}）"),
    "then.undo": ("makes the undo {tool} (step {step})", "执行撤销 {tool}（步骤 {step}）"),
    "then.twice": (
        "it honours no key: if it happened before, it happens twice",
        "它不识别键：若先前已发生，就会发生两次",
    ),
    "then.looks": (
        "looks at the value again, and undoes it if it is as the step left it",
        "再看一次该值，若仍是步骤所留之值就撤销",
    ),
    "then.model": ("a model is asked for another way; without one:", "先请模型另寻他法；没有则："),
    "then.undoes": ("undoes {steps}", "撤销 {steps}"),
    "then.settles": ("first settles {steps}", "先查明 {steps}"),
    "then.remains": ("stays in effect: {steps}", "效果保留：{steps}"),
    "then.begins": ("goes on with {steps}", "继续 {steps}"),
    "then.asks": ("asks about step {step}", "就步骤 {step} 提问"),
    "then.undone": ("{step} ({undo})", "{step}（{undo}）"),
    "then.undone-of": ("{step} ({undo} of {params})", "{step}（{undo}，参数 {params}）"),
    "then.and": (", ", "、"),
    "then.joined": ("; ", "；"),
    "then.nothing": ("nothing more is called", "不再调用任何工具"),
    "answer-means.undone": ("You have undone the effect yourself.", "您已自行撤销该效果。"),
    "answer-means.accept": ("The effect stays as it is, and the report says so.", "效果保持现状，并写入报告。"),
    "answer-means.approve": ("Exactly this call is made.", "只允许这一次调用。"),
    "answer-means.deny": ("It is not done.", "不予执行。"),
    "answer-means.undo": ("The undo is made, and overwrites what it finds.", "执行撤销，并覆盖现有内容。"),
    "answer-means.keep": ("The session stays open for its agent.", "会话保持打开，等待智能体。"),
    "answer-means.close": ("The session ends as it is. Nothing is undone.", "会话按现状结束，不撤销任何内容。"),
    "answer-means.ask-again": ("A model is asked once more how to compensate.", "再次询问模型如何补偿。"),
    "answer-means.answer": ("The value becomes the output of the step.", "该值将成为步骤的输出。"),
}
#: Why an answer, a cancel or an addition is not taken, by the code of the error; and that something is not there.
NOT_TAKEN: Final[Fragment] = {
    "amend_refused.ended": ("saga {saga} has ended: {status}", "saga {saga} 已结束：{status}"),
    "amend_refused.hint": ("submit the steps as another saga", "将这些步骤作为另一个 saga 提交"),
    "amend_refused.empty": ("there are no steps to add", "没有可追加的步骤"),
    "amend_refused.session": (
        "saga {saga} is a session: only its agent adds calls",
        "saga {saga} 是会话：只有其智能体能追加调用",
    ),
    "amend_refused.turned": ("saga {saga} is being undone", "saga {saga} 正在撤销"),
    "cancel_refused.ended": ("saga {saga} has ended: {status}", "saga {saga} 已结束：{status}"),
    "cancel_refused.hint": ("`saga show {saga}` shows its state", "`saga show {saga}` 显示其状态"),
    "cancel_refused.turned": ("saga {saga} is already being undone", "saga {saga} 已在撤销"),
    "cancel_refused.pivot": (
        "saga {saga} has passed its pivot (step {step}): it can only go forward",
        "saga {saga} 已过转折点（步骤 {step}）：只能向前",
    ),
    "cancel_refused.pivot-hint": (
        "let it finish, or answer its open questions with `saga resolve`",
        "让它完成，或用 `saga resolve` 答复其待答的提问",
    ),
    "decision_refused.step": ("saga {saga} has no step {step}", "saga {saga} 没有步骤 {step}"),
    "decision_refused.nothing": ("nothing is asked about step {step}", "没有就步骤 {step} 提问"),
    "decision_refused.answer": (
        "'{answer}' is no answer to '{kind}' about step {step}",
        "'{answer}' 不是对步骤 {step} 的提问 '{kind}' 的答复",
    ),
    "decision_refused.legal": ("legal answers: {answers}", "允许的答复：{answers}"),
    "decision_refused.open": ("open questions: step {steps}", "待答的提问：步骤 {steps}"),
    "decision_refused.none": ("the saga has no open question", "该 saga 没有待答的提问"),
    "decision_refused.others": (
        "other effects follow from '{answer}' about step {step} than expected: {then}",
        "对步骤 {step} 答复 '{answer}' 的后果与预期不同：{then}",
    ),
    "decision_refused.twice": (
        "the tool honours no key, so the call of step {step} may happen twice: {then}",
        "该工具不识别键，步骤 {step} 的调用可能发生两次：{then}",
    ),
    "decision_refused.expect": (
        "if that is wanted, answer with --expect {mark}",
        "若确实需要，请答复并加上 --expect {mark}",
    ),
    "decision_refused.output": (
        "step {step} needs an output: something else binds it",
        "步骤 {step} 需要输出：有其他内容绑定它",
    ),
    "decision_refused.no-output": (
        "an output belongs only to 'happened' of a forward step",
        "只有对正向步骤答复 'happened' 时才有输出",
    ),
    "saga_not_found": ("no saga {saga} in the store at {store}", "存储 {store} 中没有 saga {saga}"),
    "saga_not_found.hint": ("`saga list` shows the sagas of this store", "`saga list` 显示该存储的 saga"),
    "schedule_not_found": ("there is no schedule {name}", "没有调度 {name}"),
    "schedule_not_found.hint": ("`saga schedule list` shows the schedules", "`saga schedule list` 显示各个调度"),
}
_ASKS: Final = {each: under("asks", each, QUESTIONS) for each in LANGUAGES}
_EXPIRES: Final = {each: under("expires", each, QUESTIONS) for each in LANGUAGES}
#: What follows from an answer (``core.outlooks``), by language.
THEN: Final = {each: under("then", each, QUESTIONS) for each in LANGUAGES}
_ABOUT: Final = {each: under("about", each, QUESTIONS) for each in LANGUAGES}


def about(step: str, tool: str, *, undo: bool, call: Mapping[str, int] | None, language: str = "en") -> str:
    """What a question is about: a step or its undo, and which call of several (``number`` from 0, and ``of``)."""
    words = _ABOUT[language]
    found = words["undo" if undo else "step"].format(step=step)
    if call is not None:
        found = words["call"].format(n=call["number"] + 1, of=call["of"], about=found)
    return words["tool"].format(about=found, tool=tool)


def asked(kind: str, language: str = "en") -> str:
    """What a question of this kind asks; of the plan's own, who asks. ``forked``: that of a session that is a fork."""
    return _ASKS[language].get(kind) or _ASKS[language]["other"].format(kind=kind)


def expires(kind: str, language: str = "en") -> str:
    """What happens to a question of this kind without an answer, at a time that is said beside it."""
    return _EXPIRES[language].get(kind, _EXPIRES[language]["other"])
