"""What the engine itself says of a call, a step or a saga that is not as it should be.

A journal has the English text; ``translated`` knows it again by its code and its form. What tools, models and other
programs say stays as they said it.
"""

from __future__ import annotations

import re
from typing import Final

from saga_engine.language import LANGUAGES, Fragment, catalogue
from saga_engine.language.questions import NOT_TAKEN

#: By the code of the error, and by what distinguishes several of one code.
ERRORS: Final[Fragment] = {
    "answer_lost": ("it is not known whether the call happened", "不知道该调用是否发生"),
    "answer_lost.undo": ("it is not known whether the undo happened", "不知道撤销是否发生"),
    "answer_lost.process": (
        "the process that made the call ended, or lost its lease, before the answer was recorded",
        "发出该调用的进程在记录应答之前结束，或失去了租约",
    ),
    "approval_denied": ("{by} denied the call", "{by} 拒绝了该调用"),
    "approval_denied.note": ("{by} denied the call: {note}", "{by} 拒绝了该调用：{note}"),
    "approval_expired": ("nobody approved the call in time", "没有人及时批准该调用"),
    "ask_expired": ("nobody answered the question in time", "没有人及时答复该提问"),
    "breaker_open": (
        "tool {tool} is resting after {n} failures in a row; nothing was called, and the next call may come in {s} s",
        "工具 {tool} 连续失败 {n} 次，熔断器已打开；没有发出调用，{s} 秒后才可再次调用",
    ),
    "changed_meanwhile": (
        "the value that {tool} reads is not what this saga knows any more: it was {was}, and is {now}",
        "{tool} 读到的值已不是该 saga 所知的值：原为 {was}，现为 {now}",
    ),
    "deadline": (
        "the saga's deadline passed while the call waited for {what}; nothing was called",
        "该调用等待 {what} 期间，saga 已过截止时间；没有发出调用",
    ),
    "did_not_happen.no-more": ("the probe says that it did not happen", "探针表明该调用没有发生"),
    "did_not_happen.probe": (
        "the probe {tool} says that the call did not happen",
        "探针 {tool} 表明该调用没有发生",
    ),
    "did_not_happen.denied": ("not done, according to an operator", "据运维人员答复，没有完成"),
    "did_not_happen.before": (
        "not done, according to an operator; before: {before}",
        "据运维人员答复，没有完成；此前：{before}",
    ),
    "did_not_happen.operator": ("an operator said that it did not happen", "运维人员答复该调用没有发生"),
    "did_not_happen.unchanged": ("{tool}: the value is unchanged", "{tool}：值没有变化"),
    "did_not_happen.left": ("{tool}: the value is as the step left it", "{tool}：值与步骤留下的一样"),
    "drift": (
        (
            "the value that {tool} reads is neither as the step found it nor as the step left it: "
            "somebody else changed it since"
        ),
        "{tool} 读到的值既不是步骤遇到时的样子，也不是步骤留下的样子：此后有别人改动了它",
    ),
    "drift.unread": (
        (
            "the value that {tool} reads is not as the step found it, and it is not known how the step left it: "
            "its read after the call failed"
        ),
        "{tool} 读到的值不是步骤遇到时的样子，也不知道步骤留下了什么：调用之后的读取失败了",
    ),
    "drift.settled": (
        (
            "the value that {tool} reads is not as the step found it, and it is not known how the step left it: "
            "its call was settled without an answer of its own"
        ),
        "{tool} 读到的值不是步骤遇到时的样子，也不知道步骤留下了什么：该调用没有自己的应答，是以别的方式判定的",
    ),
    "drift.undone": (
        "the undo was said to be done, and the value that {tool} reads is neither as before the step nor as it left it",
        "撤销声称已完成，而 {tool} 读到的值既不是步骤之前的样子，也不是步骤留下的样子",
    ),
    "expect_unread": (
        "the call is made only if the value that {tool} reads is what this saga knows, and {why}",
        "只有 {tool} 读到的值就是该 saga 所知的值时才发出该调用，然而：{why}",
    ),
    "failed_when": (
        "the conditions that mean failure hold for the output",
        "输出满足了表示失败的条件",
    ),
    "finally_over": ("the steps of 'finally' have had {s} s", "收尾步骤的 {s} 秒已用完"),
    "guard_wait": (
        "the call would have waited too long for {what} (`guard_wait_s`); nothing was called",
        "该调用等待 {what} 的时间会过长（`guard_wait_s`）；没有发出调用",
    ),
    "image_undecided": (
        "the value that {tool} reads does not tell whether the undo happened",
        "{tool} 读到的值无法说明撤销是否发生",
    ),
    "image_undecided.own": (
        "the value that {tool} reads is not the call's own",
        "{tool} 读到的值不是该调用自己的",
    ),
    "image_unread": (
        "the read {tool} of the value that the call changes failed: {code}: {message}",
        "读取该调用所改之值的 {tool} 失败：{code}：{message}",
    ),
    "interrupted": (
        "the engine was closed while the call waited for {what}; nothing was called",
        "该调用等待 {what} 期间，引擎关闭了；没有发出调用",
    ),
    "key_expired": (
        "the repeat waited until its key may be forgotten on the other side; nothing was called",
        "重复的调用等得太久，对方可能已忘记它的幂等键；没有发出调用",
    ),
    "no_answer": ("no answer came", "没有收到应答"),
    "no_answer.read": ("the read never answered", "读取始终没有应答"),
    "no_other_way.tried": ("{n} other ways have been tried", "已试过 {n} 种其他办法"),
    "no_other_way.planner": ("no planner is set up here", "这里没有配置规划器"),
    "no_other_way.pivot": ("the saga has passed its pivot", "该 saga 已过转折点"),
    "no_undo": ("its tool has no undo", "它的工具没有撤销"),
    "not_needed": (
        "it was to compensate for step {step}, which was settled without it",
        "它原本用来补偿步骤 {step}，而该步骤已另行判定",
    ),
    "output_unknown": (
        "the value that {tool} reads has changed, so the call happened; its output is not known",
        "{tool} 读到的值已改变，说明该调用发生了；它的输出不得而知",
    ),
    "perhaps_undone.doubt": (
        "step {step} called {tool}, and it is not known whether it happened: perhaps it has undone this step",
        "步骤 {step} 调用了 {tool}，不知道是否发生：它也许已撤销了本步骤",
    ),
    "perhaps_undone": (
        "step {step} called {tool}, and not with what the undo would be called with: perhaps it has undone this step",
        "步骤 {step} 调用了 {tool}，参数与撤销所用的不同：它也许已撤销了本步骤",
    ),
    "planner_unavailable": (
        "the model could not be reached, and no process with a planner came to ask it again",
        "联系不上模型，也没有带规划器的进程来再次询问",
    ),
    "planner_unavailable.here": ("no planner is set up here", "这里没有配置规划器"),
    "saga_depth": (
        "child sagas are nested more than {most} levels deep",
        "子 saga 的嵌套超过 {most} 层",
    ),
    "session_failed": ("the agent failed", "智能体失败"),
    "step_failed": ("the step was not done", "步骤没有完成"),
    "stopped": ("nothing was called: an operator's stop holds the call", "没有发出调用：运维人员的停止阻止了它"),
    "timeout": ("no answer within {s} s", "{s} 秒内没有应答"),
    "timeout.at-work": (
        "no answer within {s} s; its thread cannot be stopped and is still at work",
        "{s} 秒内没有应答；它的线程无法停止，仍在工作",
    ),
    "undo_blocked": ("the undo was not allowed", "撤销没有得到许可"),
    "undo_failed": ("the undo did not succeed", "撤销没有成功"),
    "undo_missing": (
        "the step happened, and nothing says how it is undone",
        "步骤已发生，而没有写明如何撤销",
    ),
    "undo_unverified.probe": (
        "the undo {tool} said that it was done, and its probe says that it was not",
        "撤销 {tool} 声称已完成，而它的探针表明没有",
    ),
    "undo_unverified.part": (
        "{tool} shows a value of which some fields are as before, and others as nobody left them",
        "{tool} 显示的值中，有些字段与之前一样，另一些则不是任何人留下的样子",
    ),
    "undo_unverified.left": (
        "the undo was said to be done, and the value that {tool} reads is still as the step left it",
        "撤销声称已完成，而 {tool} 读到的值仍是步骤留下的样子",
    ),
    "undo_unverified.seen": (
        "the value that {tool} reads is the one that the operator has seen, who counts the step as undone",
        "{tool} 读到的值就是运维人员见过的那个；其将该步骤视为已撤销",
    ),
    "undo_unverified.shown": (
        "the undo was said to be done, and {tool} does not show that: {wanted}",
        "撤销声称已完成，而 {tool} 显示的并非如此：{wanted}",
    ),
    "moot": (
        "the saga turned around while the planner was asked",
        "询问规划器期间，该 saga 已转向",
    ),
    "overtaken": (
        "steps were added while the planner was asked: it is asked again",
        "询问规划器期间追加了步骤：将再次询问",
    ),
    "no_steps": (
        "the planner proposed no steps",
        "规划器没有提出步骤",
    ),
    "compute_failed.size": (
        "the result has {n} bytes of JSON, and at most {most} are kept",
        "结果的 JSON 有 {n} 字节，最多保存 {most} 字节",
    ),
    "each_failed.list": (
        "'each' needs a list, and the value is of the type {type}",
        "'each' 需要列表，而该值的类型是 {type}",
    ),
    "each_failed.items": (
        "the list has {n} items, but only {most} are allowed",
        "列表有 {n} 项，只允许 {most} 项",
    ),
    "each_failed.steps": (
        "the saga would have {n} steps, but only {most} are allowed",
        "saga 将有 {n} 个步骤，只允许 {most} 个",
    ),
    "child_undone": (
        "child saga {saga} ended {how}",
        "子 saga {saga} 结束于 {how}",
    ),
    "child_left": (
        "child saga {saga} ended {how}",
        "子 saga {saga} 结束于 {how}",
    ),
    "resource_held.itself": (
        (
            "not called: {who} holds the resource {name} since {when}, and this saga holds something itself, so "
            "both might wait without end"
        ),
        "没有发出调用：{who} 自 {when} 起持有资源 {name}，而本 saga 自己也持有资源，双方可能无休止地等待",
    ),
    "resource_held.patience": (
        ("not called: {who} holds the resource {name} since {when}, and did not give it back within `guard_wait_s`"),
        "没有发出调用：{who} 自 {when} 起持有资源 {name}，且没有在 `guard_wait_s` 之内归还",
    ),
    "resource_held.unwanted": (
        "not called: {who} holds the resource {name} since {when}, and this saga has something else to do first",
        "没有发出调用：{who} 自 {when} 起持有资源 {name}，而本 saga 要先做别的事",
    ),
    "resource_held.line-itself": (
        (
            "not called: others wait for the resource {name} as well and this saga holds something itself, so "
            "both might wait without end"
        ),
        "没有发出调用：还有别的 saga 在等待资源 {name}，而本 saga 自己也持有资源，双方可能无休止地等待",
    ),
    "resource_held.line-patience": (
        "not called: others wait for the resource {name} as well and did not give it back within `guard_wait_s`",
        "没有发出调用：还有别的 saga 在等待资源 {name}，且没有在 `guard_wait_s` 之内让出",
    ),
    "resource_held.line-unwanted": (
        "not called: others wait for the resource {name} as well and this saga has something else to do first",
        "没有发出调用：还有别的 saga 在等待资源 {name}，而本 saga 要先做别的事",
    ),
    # what guards, tools and the policy meet
    "when_undecidable.item": (
        "the conditions of item {n} cannot be evaluated: {why}",
        "第 {n} 项的条件无法判断：{why}",
    ),
    "when_undecidable": ("the conditions cannot be evaluated: {why}", "条件无法判断：{why}"),
    "failed_when_undecidable": ("the conditions cannot be evaluated: {why}", "条件无法判断：{why}"),
    "wait_timed_out": ("no event {names} came in time", "事件 {names} 没有及时到来"),
    "budget_spent": ("not called: {why}", "没有发出调用：{why}"),
    "result_unreadable": (
        "the remembered result of {owner} is no JSON: {why}",
        "记下的 {owner} 的结果不是 JSON：{why}",
    ),
    "duplicate_in_flight": (
        "saga {saga} is making an identical call of {tool}, or does not know what came of it",
        "saga {saga} 正在对 {tool} 进行相同的调用，或不知道其结果",
    ),
    "no_last_good": (
        "tool {tool} has no good result for these params that is at most {s} s old: {why}",
        "工具 {tool} 没有 {s} 秒之内、参数相同的有效结果：{why}",
    ),
    "result_shared": (
        "the call of {tool} that is to be undone also serves {sagas}; nothing was called",
        "要撤销的 {tool} 调用还供 {sagas} 使用；没有发出调用",
    ),
    "image_unread.before": (
        "the tool declares no read of the value any more, so nobody can tell whether it changed",
        "工具不再声明对该值的读取，因此无法得知它是否改变",
    ),
    "image_unread.check": (
        "the tool declares no 'undo_check' any more, so nobody looks after its undo",
        "工具不再声明 'undo_check'，因此撤销之后没有查看",
    ),
    "drift.again": (
        "the value that {tool} reads is as the step left it, but another saga has written it since",
        "{tool} 读到的值与步骤留下的一样，但此后另一个 saga 写过它",
    ),
    "drift.wrote-back": (
        "saga {saga} (step {step}) wrote the same resource at {at} and has taken that back",
        "saga {saga}（步骤 {step}）于 {at} 写过同一资源，并已撤回",
    ),
    "drift.wrote-lost": (
        "saga {saga} (step {step}) wrote the same resource at {at} and its journal is not kept here",
        "saga {saga}（步骤 {step}）于 {at} 写过同一资源，其日志已不在此处",
    ),
    "drift.wrote-undo": (
        "saga {saga} (step {step}) wrote the same resource at {at} to undo a step of its own",
        "saga {saga}（步骤 {step}）于 {at} 为撤销自己的步骤写过同一资源",
    ),
    "drift.wrote-stays": (
        "saga {saga} (step {step}) wrote the same resource at {at} and that stays",
        "saga {saga}（步骤 {step}）于 {at} 写过同一资源，且不再撤销",
    ),
    "drift.wrote-undoing": (
        "saga {saga} (step {step}) wrote the same resource at {at} and is undoing that",
        "saga {saga}（步骤 {step}）于 {at} 写过同一资源，正在撤销",
    ),
    "drift.wrote-runs": (
        "saga {saga} (step {step}) wrote the same resource at {at} and is {status}",
        "saga {saga}（步骤 {step}）于 {at} 写过同一资源，其状态为 {status}",
    ),
    "drift.wrote": (
        "saga {saga} (step {step}) wrote the same resource at {at}",
        "saga {saga}（步骤 {step}）于 {at} 写过同一资源",
    ),
    "image_unread.rivals": (
        "who else wrote the value could not be asked of the store: {message}",
        "无法向存储查询还有谁写过该值：{message}",
    ),
    "no_time_left": ("nothing was called: the time allowed is {s} s", "没有发出调用：允许的时间为 {s} 秒"),
    "no_thread": (
        "nothing was called: no thread can be started for it ({why})",
        "没有发出调用：无法为它启动线程（{why}）",
    ),
    "call_at_work": (
        "nothing was called: the thread of the call that it would undo is still at work",
        "没有发出调用：要撤销的那个调用的线程仍在工作",
    ),
    "no_probe": ("the tool {tool} has no probe", "工具 {tool} 没有探针"),
    "output_too_large": (
        "the call returned, but its result of {n} bytes is not recorded: at most {most} are",
        "调用已返回，但其结果有 {n} 字节，没有记录：最多 {most} 字节",
    ),
    "output_invalid": (
        "the call returned, but its result does not fit the output_schema{where}",
        "调用已返回，但其结果不符合 output_schema{where}",
    ),
    "result_not_json": (
        "the call returned, but its result cannot be recorded: {why}",
        "调用已返回，但其结果无法记录：{why}",
    ),
    "cancelled": ("the tool was cancelled from inside", "工具从内部被取消"),
    "tool_error": ("it was not done", "没有完成"),
    "child_lost": (
        "child saga {saga} is not in the store (any more): what remains of it is unknown",
        "子 saga {saga} 不（再）在存储中：它遗留了什么不得而知",
    ),
    "policy_failed": ("the policy failed: {why}", "策略执行出错：{why}"),
    "policy_denied": ("the policy denies {call} by rule '{rule}'{why}", "策略按规则 '{rule}' 拒绝 {call}{why}"),
    "approval_required": (
        "an operator must approve {call} by rule '{rule}'{why}",
        "按规则 '{rule}'，{call} 需经运维人员批准{why}",
    ),
    "policy_denied.cannot-ask": ("the policy cannot ask about {tool}: {why}", "策略无法就 {tool} 提问：{why}"),
    "params_invalid.secrets": (
        "a param does not fit the schema of the tool once the secrets are filled in (at {where})",
        "填入密钥之后，参数不符合工具的模式（位于 {where}）",
    ),
    "planner_defect": ("the advisor returned {type}, no Advice", "建议者返回的是 {type}，不是 Advice"),
    # what is suggested, and what processes met that took a saga over
    "changed_meanwhile.hint": ("read it again with {tool}, and decide anew", "用 {tool} 重新读取，再作决定"),
    "drift.hint": (
        "compare the values; 'undo' overwrites what was found, 'accept' leaves it",
        "比较这些值；'undo' 覆盖现有的值，'accept' 保留它",
    ),
    "drift.hint-overwrites": (
        "'undo' overwrites what was found, 'accept' leaves it",
        "'undo' 覆盖现有的值，'accept' 保留它",
    ),
    "drift.hint-undo": (
        "undo it first: `saga undo {saga}`, then answer 'retry'",
        "先撤销它：`saga undo {saga}`，然后答复 'retry'",
    ),
    "drift.hint-cancel": (
        "its undo comes first: `saga cancel {saga}`, then answer 'retry'",
        "它应先撤销：`saga cancel {saga}`，然后答复 'retry'",
    ),
    "drift.hint-wait": ("wait for saga {saga}", "等待 saga {saga}"),
    "drift.hint-again": (
        (
            "compare the values; 'undo' overwrites what was found, 'accept' leaves it, and 'retry' asks "
            "again unless the value is then as before"
        ),
        "比较这些值；'undo' 覆盖现有的值，'accept' 保留它；'retry' 会再次提问，除非届时的值与之前一样",
    ),
    "drift.hint-undone": (
        "compare the values; 'undo' overwrites what was found, 'undone' and 'accept' leave it",
        "比较这些值；'undo' 覆盖现有的值，'undone' 和 'accept' 保留它",
    ),
    "expect_unread.hint": (
        "call {tool} with the same params first, and decide by what it shows",
        "先用相同的参数调用 {tool}，再根据它显示的内容决定",
    ),
    "output_unknown.hint": ("answer 'happened' with the output", "答复 'happened' 并给出输出"),
    "perhaps_undone.hint": ("look at what stands; 'retry' makes the undo", "查看现状；'retry' 执行撤销"),
    "takeovers_without_progress.hint": ("find out what ends the process", "查明是什么使进程结束"),
    "takeovers_without_progress.hint-call": (
        "find out what the call did, and what ends the process",
        "查明该调用做了什么，以及是什么使进程结束",
    ),
    "timeout.hint": ("find out what it does before you answer", "答复之前先查明它在做什么"),
    "undo_unverified.hint": (
        "find out why; 'retry' makes the undo again, 'undone' counts it as done, 'accept' leaves the value",
        "查明原因；'retry' 再次执行撤销，'undone' 视为已撤销，'accept' 保留该值",
    ),
    "undo_unverified.hint-effect": (
        "find out why; 'retry' makes the undo again, 'undone' counts it as done, 'accept' leaves the effect",
        "查明原因；'retry' 再次执行撤销，'undone' 视为已撤销，'accept' 保留该效果",
    ),
    "takeovers_without_progress.alert": (
        ("{most} processes in a row ended, or lost their lease, while they notified operators: it is not tried again"),
        "连续 {most} 个进程在通知运维人员期间结束或失去租约：不再重试",
    ),
    "takeovers_without_progress.model": (
        ("{most} processes in a row ended, or lost their lease, while they asked a model: it is not tried again"),
        "连续 {most} 个进程在询问模型期间结束或失去租约：不再重试",
    ),
    "takeovers_without_progress.probe": (
        (
            "{most} processes in a row ended, or lost their lease, before there was an answer; {n} of them "
            "had begun to call the tool {tool}, {probes} to ask its probe: nothing more is tried by itself"
        ),
        (
            "连续 {most} 个进程在得到应答之前结束或失去租约；"
            "其中 {n} 个已开始调用工具 {tool}，{probes} 个已开始询问它的探针：不再自行尝试"
        ),
    ),
    "takeovers_without_progress.call": (
        (
            "{most} processes in a row ended, or lost their lease, before there was an answer; {n} of them "
            "had begun to call the tool {tool}: nothing more is tried by itself"
        ),
        "连续 {most} 个进程在得到应答之前结束或失去租约；其中 {n} 个已开始调用工具 {tool}：不再自行尝试",
    ),
    # ``any``: under the code of whatever they happened to.
    "any.store": (
        "{what} could not be asked of the store, so nothing was called: {message}",
        "无法向存储查询 {what}，因此没有发出调用：{message}",
    ),
    "any.duration": (
        "a duration is written as in ISO 8601: P3D, P1M, PT90M, PT0.5S, -P1W",
        "时长按 ISO 8601 书写：P3D、P1M、PT90M、PT0.5S、-P1W",
    ),
    "any.date": (
        "a date is written as in ISO 8601: 2026-02-28, or 2026-02-28T09:00:00+01:00",
        "日期按 ISO 8601 书写：2026-02-28，或 2026-02-28T09:00:00+01:00",
    ),
    "any.years": ("the date lies beyond the years 1 to 9999", "日期超出 1 年至 9999 年的范围"),
    "any.hours": (
        "a duration of hours cannot be added to a date without a time",
        "以小时计的时长不能加到没有时刻的日期上",
    ),
    "any.secret": ("the environment has no {name}", "环境中没有 {name}"),
    "any.secret-hint": (
        "set {name} in the environment of this process, and do the same again",
        "在本进程的环境中设置 {name}，然后再做一次",
    ),
    "any.secret-again": ("set {name} and try again", "设置 {name}，然后重试"),
    "any.undo-again": ("call it again if you still want it", "如果仍然需要，请再次调用"),
    "sleep_invalid.form": (
        (
            "this is no time to sleep: write seconds, such as 90; a duration of ISO 8601, such as {day} or {minutes}; "
            "or {until}"
        ),
        "这不是可以等待的时间：请写秒数，例如 90；ISO 8601 的时长，例如 {day} 或 {minutes}；或 {until}",
    ),
    "sleep_invalid.negative": ("a duration to sleep is not negative", "等待的时长不能为负"),
    "sleep_invalid.seconds": (
        "the seconds to sleep are not between 0 and {most}",
        "等待的秒数不在 0 与 {most} 之间",
    ),
    "sleep_invalid.years": (
        "the end of the sleep is more than {years} years away",
        "等待结束的时间在 {years} 年之后",
    ),
    "sleep_invalid.moment": (
        "a moment has a time and an offset: 2026-12-01T09:00:00+01:00, or Z for UTC",
        "时间点须有时刻和偏移：2026-12-01T09:00:00+01:00，UTC 可写 Z",
    ),
    "budget_spent.hint": (
        "call nothing more that costs: finish with what you have, and say what is missing",
        "不要再发出有费用的调用：用已有的结果完成，并说明还缺什么",
    ),
    "budget_spent.hint-day": (
        (
            "call nothing more that costs: finish with what you have, and say what is missing; the budget is one of "
            "each day (UTC), and begins anew after it"
        ),
        "不要再发出有费用的调用：用已有的结果完成，并说明还缺什么；该预算按天（UTC）计算，次日重新开始",
    ),
    "duplicate_in_flight.hint": (
        "wait for that saga, or settle its step in doubt",
        "等待该 saga，或判定其存疑的步骤",
    ),
    "image_unread.hint": ("restore the tool's 'before'", "恢复工具的 'before'"),
    "output_invalid.hint": (
        "find out what the call did, and what its schema must say",
        "查明该调用做了什么，以及其模式应如何写",
    ),
    "output_too_large.hint": (
        "find out what the call did; the tool should keep what is large and return where it is",
        "查明该调用做了什么；工具应自行保存大的内容，并返回其位置",
    ),
    "policy_denied.hint": (
        "make another call, or have the rule changed by whoever runs the engine",
        "改做别的调用，或请引擎的运维人员修改规则",
    ),
    "resource_held.hint-itself": (
        "a saga that began earlier wants both; undo this saga and begin again: it then waits for its turn",
        "更早开始的 saga 需要这两项资源；请撤销本 saga 并重新开始：届时它会排队等待",
    ),
    "resource_held.hint": (
        "call again later, or have an operator look: `saga show` of that saga, `saga release`",
        "稍后再次调用，或请运维人员查看：对该 saga 执行 `saga show`，或 `saga release`",
    ),
    "result_not_json.hint": (
        "find out what the call did; the tool must return finite JSON",
        "查明该调用做了什么；工具必须返回有限的 JSON",
    ),
    "result_shared.hint": (
        "undo those sagas first and try again, or leave the call as it is",
        "先撤销那些 saga 再重试，或保留该调用",
    ),
    "saga_exists": (
        "saga {saga} exists, and is no child of this one",
        "saga {saga} 已存在，且不是本 saga 的子 saga",
    ),
    "result_not_json.unread": ("the result could not be read: {why}", "无法读取结果：{why}"),
}
_TEXTS: Final = {each: catalogue(each, ERRORS, NOT_TAKEN) for each in LANGUAGES}
#: Between several errors that are told together, and how long these may be.
_BETWEEN: Final = dict(zip(LANGUAGES, ("; ", "；"), strict=True))
_LONGEST: Final = 4000
_PLACE: Final = re.compile(r"\{(\w+)\}")


def said(key: str, *, chars: int = 1000, **values: object) -> str:
    """The text of an error as a journal has it, of at most so many characters."""
    return _TEXTS["en"][key].format(**values)[:chars]


def translated(code: str, message: str, language: str) -> str:
    """An error of the engine's own in a language, by its code if that is known; another's as it is."""
    if language == LANGUAGES[0]:
        return message
    code = code.replace("-", "_")  # of an error that was raised
    for key, text in _TEXTS[LANGUAGES[0]].items():
        group = key.partition(".")[0]
        if (group == "any" or code in ("", group)) and (values := _values(text, message)) is not None:
            if "why" in values:  # another one may be the reason
                values["why"] = translated("", values["why"], language)
            return _TEXTS[language][key].format(**values)
    if "; " in message and len(message) <= _LONGEST:  # several of them
        return _BETWEEN[language].join(translated(code, each, language) for each in message.split("; "))
    return message


def _values(text: str, message: str) -> dict[str, str] | None:
    """The values in a message that has this form; None: it has another one. (No regular expression: it is hostile.)."""
    pieces = _PLACE.split(text)
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return {} if message == text else None
    if len(message) < len(first) + len(last) or not (message.startswith(first) and message.endswith(last)):
        return None
    rest, found = message[len(first) : len(message) - len(last)], {}
    for name, piece in zip(pieces[1:-2:2], pieces[2:-1:2], strict=True):
        value, there, rest = rest.partition(piece)
        if not there:
            return None
        found[name] = value
    found[pieces[-2]] = rest
    return found
