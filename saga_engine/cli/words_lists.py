"""The words of lists and of what holds for many sagas: the queue, schedules, stops, holds, batches."""

from __future__ import annotations

from typing import Final

from saga_engine.language import Fragment

LISTS: Final[Fragment] = {
    "list.there": (
        "these are the sagas of {store}; those of {runtime} are in Temporal's own lists",
        "这些是 {store} 的 saga；{runtime} 的 saga 在 Temporal 自己的列表中",
    ),
    "list.more": ("there are more; --limit shows more than {n}", "还有更多；--limit 可显示多于 {n} 个"),
    "list.next": (
        "there may be more; the same command with --cursor {cursor} continues",
        "可能还有更多；同一命令加上 --cursor {cursor} 继续",
    ),
    "list.none": ("there are no sagas{which} in {store}", "{store} 中没有{which} saga"),
    "list.with": (" with status {status}", "状态为 {status} 的"),
    "list.of-age": (" of that age", "符合该时间的"),
    "list.matching": (" that match", "符合条件的"),
    "list.asked": (
        "the open questions, and the commands that answer them: {line}",
        "待答的提问以及答复它们的命令：{line}",
    ),
    "list.unowned": (
        "no process owns some sagas: they wait for a worker or a timer, a session for its agent; or: {line}",
        "有些 saga 没有所有者：它们等待工作进程或定时器，会话则等待其智能体；或执行：{line}",
    ),
    "title.changed": ("CHANGED", "更新时间"),
    "title.steps": ("STEPS", "步骤"),
    "title.about": ("ABOUT", "说明"),
    "list.messages.one": ("{n} message waiting", "{n} 条消息等待读取"),
    "list.messages": ("{n} messages waiting", "{n} 条消息等待读取"),
    "list.resume": (": resume it", "：请恢复执行"),
    "list.question": ("step {step}: {kind}{whom}?", "步骤 {step}：{kind}{whom}？"),
    "list.waits": ("waits", "等待"),
    "list.waits-until": ("waits until {when}", "等待到 {when}"),
    "list.no-owner": ("no owner", "没有所有者"),
    # --- top
    "top.none": ("there are no sagas: there is no store in {folder} yet", "没有 saga：{folder} 中还没有存储"),
    "top.sagas": ("sagas    {states}", "saga     {states}"),
    "top.no-sagas": ("none", "没有"),
    "top.queue": (
        "queue    {queued} wait for a worker{waited}, {timed} wait for a timer",
        "队列     {queued} 个等待工作进程{waited}，{timed} 个等待定时器",
    ),
    "top.waited": (" (the longest for {s} s)", "（最长 {s} 秒）"),
    "top.now": (
        "now      {driving} sagas running, {calls} calls in flight",
        "现在     {driving} 个 saga 执行中，{calls} 个调用进行中",
    ),
    "top.rates": (
        "each s   {begun} calls started, {ended} sagas ended",
        "每秒     开始 {begun} 个调用，结束 {ended} 个 saga",
    ),
    "top.owners": ("owners   {owners}", "进程     {owners}"),
    "top.alive": ("{alive} alive{named}, {gone} expired", "{alive} 个存活{named}，{gone} 个已过期"),
    "top.open": ("{tool} open for {s} s more", "{tool} 还将打开 {s} 秒"),
    "top.half-open": ("{tool} lets one call through", "{tool} 放行一个调用"),
    "top.breakers": ("breakers {breakers}: calls wait", "熔断器   {breakers}：调用等待"),
    "top.held": (
        "held     {n} resources by sagas, {waiting} calls wait for them",
        "持有     saga 持有 {n} 个资源，{waiting} 个调用在等待",
    ),
    "top.holds": (
        "         {resource} by saga {saga} since {when}{overdue}{waits}",
        "         {resource}，由 saga {saga} 自 {when} 起持有{overdue}{waits}",
    ),
    "top.overdue": (", overdue", "，逾期"),
    "top.waits": ("; {n} waiting", "；{n} 个等待"),
    "top.differ": ("differ   {words}", "不同     {words}"),
    "top.no-workers": ("no live workers", "没有存活的工作进程"),
    "top.asks.one": ("{n} saga waits for an operator: {line}", "{n} 个 saga 等待运维人员：{line}"),
    "top.asks": ("{n} sagas wait for an operator: {line}", "{n} 个 saga 等待运维人员：{line}"),
    "top.wait": ("sagas wait for a worker: {line}", "有 saga 等待工作进程：{line}"),
    "title.worker": ("WORKER", "工作进程"),
    "title.running": ("RUNNING", "执行中"),
    "title.in-flight": ("IN FLIGHT", "进行中"),
    "title.calls-s": ("CALLS/S", "调用/秒"),
    "title.ended-s": ("ENDED/S", "结束/秒"),
    "title.taken": ("TAKEN", "领取"),
    "title.returned": ("RETURNED", "归还"),
    "title.refused": ("REFUSED", "被拒绝"),
    # --- stops
    "stop.none": ("no stop holds", "没有生效的停止"),
    "stop.told": ("stopped: {stop}", "已停止：{stop}"),
    "stop.all": ("all forward calls", "全部正向调用"),
    "stop.tool": ("calls of tool {name}", "工具 {name} 的调用"),
    "stop.saga": ("calls of saga {name}", "saga {name} 的调用"),
    "stop.nobody": ("nobody named", "未具名者"),
    "stop.line": ("{held}, by {by} since {when}{why}; {way} lifts it", "{held}，由 {by} 自 {when} 起{why}；{way} 解除"),
    "stop.unknown": ("whether a tool has this name is not known: {why}", "不知道是否有工具叫这个名字：{why}"),
    "stop.no-saga": (
        (
            "there is no saga {saga} in this store yet; the stop holds it as soon as it exists"
            " (a tool is stopped with --tool {saga})"
        ),
        "该存储中还没有 saga {saga}；它一旦存在，停止就对它生效（工具用 --tool {saga} 停止）",
    ),
    # --- holds
    "held.none": ("no saga holds anything", "没有 saga 持有资源"),
    "held.consequences": (
        (
            "then others may change it at once. The saga goes on, and takes it again at its next call, if it is free. "
            "Its later undos of tools with `before` are checked for drift; all others overwrite what others have "
            "written."
        ),
        (
            "随后别人可以立即改动它。saga 会继续，若资源空闲，会在下一次调用时重新持有它。"
            "此后对带 `before` 的工具的撤销会检查是否有他人改动；其他撤销会覆盖别人所写的内容。"
        ),
    ),
    "held.ask": ("take it away?", "释放吗？"),
    "held.no-one": (
        "nobody can be asked here: --yes does it without asking",
        "此处无法询问：--yes 不询问直接执行",
    ),
    "held.released": ("released {what}", "已释放 {what}"),
    "held.free": ("it was free already", "它本来就是空闲的"),
    "held.what": ("{resource} by saga {saga}", "{resource}（属于 saga {saga}）"),
    "held.line": (
        "held: {what} since {when} ({tool}{shared}{overdue}){waiting}",
        "持有：{what}，始于 {when}（{tool}{shared}{overdue}）{waiting}",
    ),
    "held.since": ("{saga} since {when}", "{saga} 自 {when}"),
    "held.waiting": ("; waiting: {sagas}", "；等待者：{sagas}"),
    "held.overdue": (", overdue: more than {n} s", "，逾期：已超过 {n} 秒"),
    "held.shared": (", to read", "，只读"),
    "nothing-changed": ("nothing was changed", "没有改动任何内容"),
    # --- many sagas
    "batch.no-one": (
        "nobody can be asked here: --yes acts without asking, --dry-run shows what would happen",
        "此处无法询问：--yes 不询问直接执行，--dry-run 显示将会发生什么",
    ),
    "do.cancel": ("cancel", "取消"),
    "do.resume": ("resume", "恢复执行"),
    "do.resolve": ("answer", "答复"),
    "batch.none": (
        "nothing to {verb}: no saga in {store} fits this search",
        "没有可{verb}的内容：{store} 中没有符合此搜索的 saga",
    ),
    "batch.none-asked": (
        "nothing to {verb}: no saga in {store} has an open question and fits this search",
        "没有可{verb}的内容：{store} 中没有符合此搜索且有待答提问的 saga",
    ),
    "batch.hidden": ("and {n} more; --json has them all", "另有 {n} 项；--json 显示全部"),
    "batch.limit": ("more sagas fit; --limit acts on more than {n}", "还有符合条件的 saga；--limit 可处理多于 {n} 个"),
    "batch.stays": ("stays: {why}", "保持原样：{why}"),
    "batch.continues": ("continues", "继续"),
    "batch.answer": ("step {step}: {then}", "步骤 {step}：{then}"),
    "batch.undoes.one": ("undoes {n} step", "撤销 {n} 个步骤"),
    "batch.undoes": ("undoes {n} steps", "撤销 {n} 个步骤"),
    "batch.settles.one": ("settles {n} step first", "先判定 {n} 个步骤"),
    "batch.settles": ("settles {n} steps first", "先判定 {n} 个步骤"),
    "batch.remain.one": ("{n} effect remains", "保留 {n} 项效果"),
    "batch.remain": ("{n} effects remain", "保留 {n} 项效果"),
    "batch.nothing-to-undo": ("nothing to undo", "没有需要撤销的步骤"),
    "batch.semicolon": ("; ", "；"),
    "batch.sagas.one": ("{verb}: {n} saga", "{verb}：{n} 个 saga"),
    "batch.sagas": ("{verb}: {n} sagas", "{verb}：{n} 个 saga"),
    "batch.sure.one": ("{verb} {n} saga?", "{verb} {n} 个 saga？"),
    "batch.sure": ("{verb} {n} sagas?", "{verb} {n} 个 saga？"),
    "batch.undone": ("{n} steps undone", "撤销 {n} 个步骤"),
    "batch.effects": ("{n} effects remain", "保留 {n} 项效果"),
    "batch.questions": ("{n} questions, '{decision}'", "{n} 个提问，'{decision}'"),
    "batch.left.one": ("{n} stays as it is", "{n} 个保持原样"),
    "batch.left": ("{n} stay as they are", "{n} 个保持原样"),
    "batch.progress": ("{n} of {of}", "第 {n} 个，共 {of} 个"),
    "batch.recorded": ("recorded", "已记录"),
    "batch.unchanged": ("not changed", "未改动"),
    "batch.act": ("workers act on it; without one: {line}", "由工作进程处理；没有工作进程时：{line}"),
    "batch.again": (
        "more sagas fit the search; the same command again acts on the next ones",
        "还有符合条件的 saga；再次执行同一命令处理其余的",
    ),
    "title.then": ("THEN", "随后"),
    "title.now": ("NOW", "现在"),
    "title.sagas": ("SAGAS", "SAGA"),
    # --- schedules
    "schedules.none": (
        "there are no schedules in {store}: `saga schedule put` makes one",
        "{store} 中没有调度：`saga schedule put` 创建一个",
    ),
    "title.of-schedule": ("SCHEDULE", "调度"),
    "title.template": ("TEMPLATE", "模板"),
    "title.when": ("WHEN", "时间"),
    "title.next": ("NEXT", "下次"),
    "title.begun": ("BEGUN", "已启动"),
    "schedule.deleted": ("deleted: schedule {name}", "已删除：调度 {name}"),
    "schedule.queued": ("saga {saga}: queued", "saga {saga}：已放入队列"),
    "schedule.line": (
        "schedule {name}: {what}, {when}; next: {next}",
        "调度 {name}：{what}，{when}；下次：{next}",
    ),
    "schedule.template": ("template: {template}", "模板：{template}"),
    "schedule.when": ("when: {when}", "时间：{when}"),
    "schedule.next": ("next: {next}", "下次：{next}"),
    "schedule.rules": (
        "rules: overlap {overlap}, catch-up {catch_up}, pause after {n} in a row",
        "规则：重叠 {overlap}，补上 {catch_up}，连续 {n} 次后暂停",
    ),
    "schedule.no-pause": ("none", "（不限）"),
    "schedule.input": ("input: {input}", "输入：{input}"),
    "schedule.begun": ("begun {n}, skipped {skipped}", "已启动 {n}，已跳过 {skipped}"),
    "schedule.tags": ("tags: {tags}", "标签：{tags}"),
    "schedule.recent": ("last sagas: {sagas}", "最近的 saga：{sagas}"),
    "schedule.failed": ("the last tick was not submitted: {why}", "上一个时刻未能提交：{why}"),
    "schedule.every": ("every {n} s", "每 {n} 秒"),
    "schedule.paused": ("paused", "已暂停"),
    "schedule.paused-why": ("paused: {why}", "已暂停：{why}"),
    "schedule.never": ("never", "从不"),
    "schedule.late": ("overdue since {when}", "自 {when} 起逾期"),
    "schedule.overdue": (
        "{name}{more}: overdue; workers fire ticks, see saga worker",
        "{name}{more}：已逾期；时刻由工作进程触发，见 saga worker",
    ),
    "schedule.interval": ("an interval is at least 1s", "间隔至少为 1s"),
    "tick.happened": ("{saga}: has happened", "{saga}：已发生"),
    "tick.queued": ("{saga}: queued", "{saga}：已放入队列"),
    "tick.missed": ("{saga}: has not happened", "{saga}：没有发生"),
    "tick.none": ("no tick lies in that time", "该时间段内没有时刻"),
    "tick.yes.one": ("--yes queues {n} saga; workers run them", "--yes 将 {n} 个 saga 放入队列；由工作进程执行"),
    "tick.yes": ("--yes queues {n} sagas; workers run them", "--yes 将 {n} 个 saga 放入队列；由工作进程执行"),
}
