"""What each error of the engine means, by its code: the words of the class in ``errors``, and their Chinese.

An error's own message names ids and values; a page in another language shows this above it.
"""

from __future__ import annotations

from typing import Final

from saga_engine.language import Fragment

REFUSALS: Final[Fragment] = {
    "alert-undelivered": (
        "A hook could not deliver a question. The engine repeats the delivery.",
        "钩子未能送出某个提问。引擎会重复投递。",
    ),
    "amend-refused": (
        "Steps cannot be added: the saga has ended, is being undone, or the list is empty.",
        "无法追加步骤：saga 已结束、正在撤销，或者列表为空。",
    ),
    "binding-unresolved": (
        "A binding has no value, or more than one, when the call that needs it is about to be made.",
        "某个绑定在即将发起需要它的调用时没有值，或者有多个值。",
    ),
    "call-blocked": (
        "The policy, or the operator whom it asked, refused a call of a session. Nothing was called.",
        "策略，或者策略所询问的运维人员，拒绝了会话的一次调用。没有调用任何工具。",
    ),
    "call-failed": (
        "A call of a session was not done; the agent may do something else. `error_code` comes from the tool.",
        "会话的一次调用没有完成；智能体可以改做别的。`error_code` 由工具给出。",
    ),
    "call-invalid": (
        (
            "A call of a session cannot be made as the agent wrote it: `problems` lists why. Nothing was recorded "
            "or called."
        ),
        "会话的调用不能按智能体所写的那样发起：`problems` 列出原因。没有记录，也没有调用。",
    ),
    "cancel-refused": (
        "The saga has passed its pivot or has ended: it cannot be cancelled any more.",
        "saga 已越过转折点或已结束，不能再取消。",
    ),
    "decision-refused": (
        (
            "An operator's answer does not fit the open question: wrong step, no question, or not among the legal "
            "answers."
        ),
        "运维人员的答复与待答的提问不符：步骤不对、没有提问，或者不在允许的答复之列。",
    ),
    "durability-insufficient": (
        "The server provides less durability than configured, at start or since it came back.",
        "服务器的持久性低于设置的要求，启动时如此，或者恢复之后如此。",
    ),
    "erase-refused": (
        "A saga cannot be erased: it has not ended, or its payloads were never sealed.",
        "saga 无法擦除：尚未结束，或者其内容从未加密。",
    ),
    "event-loop-mismatch": (
        (
            "A coordinator, a session or a handle was used outside the event loop in which it was opened. Nothing "
            "was done."
        ),
        "协调器、会话或句柄在打开它的事件循环之外被使用。没有执行任何操作。",
    ),
    "event-refused": (
        "An event was not accepted: its name, key, id or payload is none, does not fit, or its channel is full.",
        "事件未被接受：名字、键、id 或内容无效或不符，或者其通道已满。",
    ),
    "extension-missing": (
        "A saga has a step of a package that is not installed here. The saga stays exactly as it is.",
        "saga 有一步属于未在此处安装的软件包。saga 原样保持不动。",
    ),
    "files-exist": (
        "A command would write files of which some exist: it changes none.",
        "命令要写的文件中有些已经存在：它一个也不改动。",
    ),
    "forbidden": (
        (
            "The token does not have the scope, or the request comes from a page or a host that the server does not "
            "serve."
        ),
        "令牌没有相应的权限范围，或者请求来自服务器不服务的页面或主机。",
    ),
    "fork-refused": (
        ("A saga cannot be forked: it is running, past its pivot, or its effects have changed or are another fork's."),
        "saga 无法分叉：正在执行、已越过转折点，或者其效果已经改变或属于另一个分叉。",
    ),
    "goal-impossible": (
        "The model says that no plan of these tools serves the goal; the message has its reason.",
        "模型表示这些工具的任何计划都达不到目标；错误信息中有它的理由。",
    ),
    "interrupted": (
        "Waiting for a saga was interrupted. The saga is in the state that its journal describes.",
        "对 saga 的等待被中断。saga 处于其日志所描述的状态。",
    ),
    "issuer-unavailable": (
        "The server cannot verify a token now, because the OpenID Connect issuer does not give its keys.",
        "OpenID Connect 的签发方不提供密钥，服务器此刻无法验证令牌。",
    ),
    "job-not-found": ("The server has no job with this id.", "服务器上没有此 id 的作业。"),
    "journal-conflict": (
        "The journal does not continue where this process left it: another process wrote. Nothing was added.",
        "日志与本进程上次写到之处不衔接：另一个进程写入过。没有追加任何记录。",
    ),
    "journal-unreadable": (
        "A record cannot be understood by this version of the engine, or the journal contradicts itself.",
        "本版本的引擎无法理解某条记录，或者日志自相矛盾。",
    ),
    "key-missing": (
        "Payloads are sealed with a key that this process does not have. The saga stays exactly as it is.",
        "内容所用的加密密钥，本进程没有。saga 原样保持不动。",
    ),
    "key-refused": (
        "A key is not the one that its name stands for, or was retired: somebody put back an old or a foreign one.",
        "某个密钥与其名字所代表的密钥不符，或者已经停用：有人放回了旧的或外来的密钥。",
    ),
    "key-reused": (
        "An idempotency key stands for another request of the same caller. Nothing was done.",
        "幂等键已用于同一调用方的另一个请求。没有执行任何操作。",
    ),
    "lease-held": ("Another live process owns the saga.", "另一个存活的进程拥有该 saga。"),
    "lease-lost": (
        "This process no longer has the right to write the saga's journal; it stopped before the next effect.",
        "本进程不再有权写入该 saga 的日志；它在下一个效果发生之前停下。",
    ),
    "model-unreachable": (
        "The model did not answer: refused, overloaded, unreachable, or too slow. Nothing was started.",
        "模型没有应答：拒绝、过载、不可达或太慢。没有启动任何执行。",
    ),
    "needs-person": (
        "A session cannot continue before an operator has answered; then the agent runs again with the same id.",
        "运维人员答复之前，会话无法继续；答复之后，智能体以同一个 id 再次运行。",
    ),
    "output-not-fetched": (
        "Only the cut form of a large output is available, and a program must not use that as the value.",
        "手头只有某个大输出的截断形式，程序不得把它当作该值使用。",
    ),
    "plan-invalid": (
        "The engine refused a plan before anything ran; `problems` lists all its problems.",
        "引擎在执行任何内容之前拒绝了计划；`problems` 列出它的全部问题。",
    ),
    "planner-asks": (
        "The model asks the user before it plans: `questions` has a `name`, a `question` and maybe `options` each.",
        "模型在编写计划之前询问用户：`questions` 中每项有 `name`、`question`，可能还有 `options`。",
    ),
    "planner-failed": (
        "The model used its budget and gave no valid plan; `transcript` has its answers.",
        "模型用完了预算，没有给出有效的计划；`transcript` 是它的各次回答。",
    ),
    "planner-needs": (
        "The goal needs parts of the plan format that the model may not use here: `needs` names them.",
        "目标需要模型在此不可使用的计划格式部分：`needs` 给出其名字。",
    ),
    "planner-unavailable": (
        (
            "No model is configured here: the extra, the model's name or its key is missing, or its settings are "
            "invalid."
        ),
        "这里没有配置模型：缺少附加依赖、模型名或其密钥，或者其设置无效。",
    ),
    "queue-full": (
        "The maximum number of sagas waits for a worker. Nothing was journalled; submit again later.",
        "等待工作进程的 saga 已达最大数量。没有写入日志；请稍后再次提交。",
    ),
    "quota-exceeded": (
        "A token or a tenant has reached a limit of the server. Nothing was done.",
        "令牌或租户已达到服务器的限额。没有执行任何操作。",
    ),
    "request-invalid": (
        ("A request to the server has a wrong path, method, header, size or field; `where` in its context says which."),
        "发给服务器的请求在路径、方法、头部、大小或字段上有误；上下文中的 `where` 指明是哪一处。",
    ),
    "resume-refused": (
        "The saga has ended, or waits for an operator: of a batch it is left out.",
        "saga 已结束，或正在等待运维人员：批量操作会略过它。",
    ),
    "runtime-unavailable": (
        "The Temporal server cannot be reached, or no worker answers for the saga. Nothing is lost.",
        "无法连接 Temporal 服务器，或者没有工作进程为该 saga 应答。没有丢失任何内容。",
    ),
    "runtime-unsupported": (
        "The runtime of these sagas does not support this. Nothing was done.",
        "这些 saga 的运行时不支持此操作。没有执行任何操作。",
    ),
    "saga-erased": (
        "The key of this saga was destroyed: its payloads are gone. The context has `by`, `why` and `at_ms`.",
        "该 saga 的密钥已被销毁：其内容不复存在。上下文中有 `by`、`why` 和 `at_ms`。",
    ),
    "saga-error": ("The base of all errors that the engine raises on purpose.", "引擎主动抛出的所有错误的基类。"),
    "saga-exists": (
        "This id belongs to a saga with another plan or other input.",
        "这个 id 属于另一份计划或另一份输入的 saga。",
    ),
    "saga-not-found": ("No saga has this id in this store.", "该存储中没有此 id 的 saga。"),
    "schedule-not-found": ("The store has no schedule of this name.", "存储中没有此名字的调度。"),
    "seal-broken": (
        (
            "A sealed payload is not what was written at its place: it was changed, moved, or put there by another "
            "program."
        ),
        "某项加密的内容与当初写在该处的不同：被改动、被移动，或者由其他程序放入。",
    ),
    "secret-missing": (
        "A plan needs `$secret.NAME` and the environment has no such variable. The saga stays as it is.",
        "计划需要 `$secret.NAME`，而环境中没有这个变量。saga 保持原样。",
    ),
    "session-diverged": (
        "An agent that runs again makes other calls than its session has recorded.",
        "再次运行的智能体发出的调用与其会话记录的不同。",
    ),
    "session-ended": (
        "The session is over, or was never opened: no more calls can be made in it.",
        "会话已经结束，或者从未打开：不能再在其中调用。",
    ),
    "setting-invalid": (
        "A flag, an environment variable or an entry of `saga.toml` is invalid here.",
        "某个参数、环境变量或 `saga.toml` 中的条目在此处无效。",
    ),
    "signature-invalid": (
        "An event or a callback has no valid signature, is too old, or comes for a wait that is over.",
        "事件或回调没有有效的签名、过于陈旧，或者对应的等待已经结束。",
    ),
    "step-unknown": ("A saga has no step with this id.", "saga 中没有此 id 的步骤。"),
    "stop-incomplete": (
        (
            "A stop was set or lifted, and primaries of a cluster that are away did not get that: "
            '`context["partitions"]`.'
        ),
        '停止已设置或解除，但集群中不在线的主节点没有收到：`context["partitions"]`。',
    ),
    "store-refused": (
        "The store answered with an error (out of memory, read only, no permission). Nothing was added.",
        "存储以错误应答（内存不足、只读、没有权限）。没有追加任何记录。",
    ),
    "store-unavailable": (
        "The store cannot be reached. No effect was started that is not journalled; nothing is lost.",
        "无法连接存储。没有启动任何未写入日志的效果；没有丢失任何内容。",
    ),
    "store-url-invalid": (
        "The store's URL is malformed, or the extra that it needs is not installed.",
        "存储的 URL 格式有误，或者没有安装它所需的附加依赖。",
    ),
    "template-not-found": ("The store has no template of this name and version.", "存储中没有此名字和版本的模板。"),
    "token-not-found": ("The store has no token with this id.", "存储中没有此 id 的令牌。"),
    "tool-invalid": (
        "A tool's declaration contradicts itself, or its module cannot be loaded.",
        "工具的声明自相矛盾，或者无法加载其模块。",
    ),
    "tool-missing": (
        "A saga needs a tool that is not registered here. The saga stays exactly as it is.",
        "saga 需要的某个工具在这里没有注册。saga 原样保持不动。",
    ),
    "trace-broken": (
        "The file was changed, truncated, or is no trace; the context has the `line` (from 1) where it breaks.",
        "文件被改动、被截断，或者不是轨迹；上下文中的 `line`（从 1 开始）是出错的行。",
    ),
    "unauthenticated": (
        "A request to the server has no token, or one that is unknown, expired or revoked.",
        "发给服务器的请求没有令牌，或者令牌未知、已过期或已吊销。",
    ),
    "undo-refused": (
        ("A saga cannot be undone: it has not completed, nothing of it stands, or steps without an undo would remain."),
        "saga 无法撤销：尚未完成、已没有任何仍在生效的内容，或者会留下没有撤销的步骤。",
    ),
    "value-not-json": (
        "A value cannot be journalled: it is not finite JSON, or it is larger or deeper than the limits.",
        "某个值无法写入日志：它不是有限的 JSON，或者超出大小或深度的限制。",
    ),
}
