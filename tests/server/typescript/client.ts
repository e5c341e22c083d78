// A client of the generated types: what a program in TypeScript does with a server. It throws at the first surprise.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[]; stdout: { write(text: string): void } };

type Saga = components["schemas"]["Saga"];
type Problem = components["schemas"]["Problem"];

const [url = "", token = ""] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const client = createClient<paths>({ baseUrl: url, headers });

function expected(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

function body<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const book = { steps: [{ step_id: 1, tool: "book", params: { item: "room" } }] };
const ask = { steps: [{ step_id: "go", ask: { question: "Shall we?", options: ["yes", "no"] } }] };

// submit, and wait for the end
const done: Saga = body(await client.POST("/v1/sagas", { params: { query: { wait: 60 } }, body: { plan: book, saga_id: "booked" } }));
expected(done.status === "COMPLETED", `it is ${done.status}`);
const output: unknown = done.steps[0]?.output;
expected(JSON.stringify(output) === '{"ref":"ref-room"}', `its output is ${JSON.stringify(output)}`);

// answer a question
const waiting = body(
  await client.POST("/v1/sagas", {
    params: { query: { wait: 60 }, header: { "Idempotency-Key": "ask-1" } },
    body: { plan: ask, tags: ["asked"] },
  }),
);
const question = waiting.questions[0];
expected(question !== undefined && question.kind === "ask", "it asks");
expected(question.options.join() === "yes,no", "with its options");
const answered = body(
  await client.POST("/v1/sagas/{saga_id}/resolve", {
    params: { path: { saga_id: waiting.saga_id }, query: { wait: 60 } },
    body: { step_id: question.step_id, decision: "yes", note: "from TypeScript" },
  }),
);
expected(answered.status === "COMPLETED", `it is ${answered.status}`);

// stream the journal to its end
const streamed = await client.GET("/v1/sagas/{saga_id}/stream", {
  params: { path: { saga_id: "booked" } },
  parseAs: "stream",
});
const text = await new Response(body(streamed)).text();
const seqs = [...text.matchAll(/^id: ([0-9]+)$/gm)].map((found) => Number(found[1]));
expected(seqs.length > 2 && seqs.every((seq, at) => seq === at), `records ${seqs.join()}`);
expected(text.includes("event: end"), "the stream ends with the saga");

// page a list
for (let number = 0; number < 5; number++) {
  body(await client.POST("/v1/sagas", { body: { plan: book, saga_id: `page-${number}`, tags: ["paged"] } }));
}
const names: string[] = [];
let cursor: string | null = null;
do {
  const query: { tag: string[]; limit: number; cursor?: string } = { tag: ["paged"], limit: 2 };
  if (cursor !== null) query.cursor = cursor;
  const page: components["schemas"]["SagaPage"] = body(await client.GET("/v1/sagas", { params: { query } }));
  names.push(...page.sagas.map((saga) => saga.saga_id));
  cursor = page.cursor;
} while (cursor !== null);
expected(names.sort().join() === "page-0,page-1,page-2,page-3,page-4", names.join());

// errors are problems, with types
const other = await client.POST("/v1/sagas", { body: { plan: ask, saga_id: "booked" } });
const conflict: Problem | undefined = other.error;
expected(other.response.status === 409 && conflict?.code === "saga-exists", JSON.stringify(conflict));
const wrong = await client.POST("/v1/sagas", { body: { plan: { steps: [{ step_id: 1, tool: "nothing" }] } } });
const problems = wrong.error?.problems ?? [];
expected(wrong.response.status === 422 && problems.length > 0, JSON.stringify(wrong.error));
const path: string | undefined = problems[0]?.path;
expected(typeof path === "string" && path.startsWith("$"), String(path));
const none = await createClient<paths>({ baseUrl: url }).GET("/v1/sagas/{saga_id}", {
  params: { path: { saga_id: "booked" } },
});
expected(none.error?.code === "unauthenticated" && none.error.status === 401, JSON.stringify(none.error));
// @ts-expect-error: a path that the document lacks does not compile
void (() => client.GET("/v1/nothing"));
// @ts-expect-error: nor does a field of another type
void (() => client.POST("/v1/sagas", { body: { plan: book, saga_id: 17 } }));

process.stdout.write("all of it\n");
