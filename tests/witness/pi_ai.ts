// Asks the Cursor provider of @oh-my-pi/pi-ai, one JSON object per line in, one out. Arguments: where it is installed, the
// server's address, a token. An answer begins with a tab, so that whatever the library prints is told apart.
const [home, baseUrl, apiKey] = process.argv.slice(2);
const library = (path: string) => import(`${home}/node_modules/@oh-my-pi/${path}`);
const [{ streamCursor }, { buildModel }, { fetchCursorUsableModels }] = await Promise.all([
  library("pi-ai/src/providers/cursor.ts"),
  library("pi-catalog/src/build.ts"),
  library("pi-catalog/src/discovery/cursor.ts"),
]);

const FREE = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
const listed = new Map<string, any>();
const discovered = async () => {
  for (const one of (await fetchCursorUsableModels({ apiKey, baseUrl })) ?? []) listed.set((one as any).id, one);
  return [...listed.keys()];
};
const model = (id: string) =>
  listed.get(id) ??
  buildModel({
    id, name: id, api: "cursor-agent", provider: "cursor", baseUrl, reasoning: false,
    input: ["text", "image"], cost: FREE, contextWindow: 200_000, maxTokens: 64_000,
  });

// The story is a list of {user | calls | result | said} items; the library wants messages of its own kind.
function messages(story: any[], id: string) {
  return story.map((item, index) => {
    const timestamp = 1_700_000_000_000 + index;
    if (item.user !== undefined) {
      const words = { type: "text", text: item.user };
      const content = item.picture ? [words, { type: "image", mimeType: "image/png", data: item.picture }] : item.user;
      return { role: "user", content, timestamp };
    }
    if (item.result !== undefined) {
      return {
        role: "toolResult", toolCallId: item.id, toolName: item.name, isError: Boolean(item.failed), timestamp,
        content: [{ type: "text", text: item.result }],
      };
    }
    const calls = (item.calls ?? []).map((call: any) => ({ type: "toolCall", id: call.id, name: call.name, arguments: call.args }));
    const said = item.said ? [{ type: "text", text: item.said }] : [];
    return {
      role: "assistant", content: [...said, ...calls], api: "cursor-agent", provider: "cursor", model: id,
      stopReason: "stop", usage: { ...FREE, totalTokens: 0, cost: { ...FREE, total: 0 } }, timestamp,
    };
  });
}

async function turn(ask: any) {
  const began = Date.now();
  const seen: any = { text: "", thought: "", calls: [], ran: [], deltas: [], error: "", output: 0 };
  const stop = new AbortController();
  const options: any = { apiKey, conversationId: ask.conversation, signal: stop.signal };
  if (ask.answers) {
    options.execHandlers = {
      mcp: async (call: any) => {
        const name = call.toolName || call.name;
        const entry: any = { id: call.toolCallId, name, args: call.args, from: Date.now() - began };
        seen.ran.push(entry);
        const answer = ask.answers[name] ?? { text: "nothing was expected here" };
        await Bun.sleep(answer.wait ?? 0);
        entry.to = Date.now() - began;
        return {
          role: "toolResult", toolCallId: call.toolCallId, toolName: name, isError: Boolean(answer.failed),
          content: [{ type: "text", text: answer.text }], timestamp: Date.now(),
        };
      },
    };
  } else if (ask.tools.length) {
    options.externalToolExecutor = true;
  }
  const tools = ask.tools.map((tool: any) => ({ name: tool.name, description: tool.name, parameters: tool.schema }));
  const context = {
    systemPrompt: ask.system ? [ask.system] : undefined,
    messages: messages(ask.story, ask.model),
    tools: tools.length ? tools : undefined,
  };
  let final: any;
  for await (const event of streamCursor(model(ask.model) as any, context as any, options) as any) {
    if (event.type === "text_delta") {
      seen.text += event.delta;
      seen.deltas.push(Date.now() - began);
      if (ask.cancel) stop.abort();
    }
    if (event.type === "thinking_delta") seen.thought += event.delta;
    if (event.type === "done") final = event.message;
    if (event.type === "error") final = event.error;
  }
  seen.calls = (final?.content ?? [])
    .filter((block: any) => block.type === "toolCall")
    .map((block: any) => ({ id: block.id, name: block.name, args: block.arguments }));
  seen.error = final?.errorMessage ?? "";
  seen.output = final?.usage?.output ?? 0;
  seen.seconds = (Date.now() - began) / 1000;
  return seen;
}

for await (const line of console) {
  const ask = JSON.parse(line);
  let answer: any;
  try {
    answer = ask.models ? { models: await discovered() } : await turn(ask);
  } catch (failure) {
    answer = { broke: String((failure as any)?.stack ?? failure) };
  }
  process.stdout.write(`\t${JSON.stringify(answer)}\n`);
}
process.exit(0);
