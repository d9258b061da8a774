// openai-node: responses over HTTP, and over its WebSocket helper, which may wait on one connection for a whole loop.
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { apiKey, base, both, check, fails, final, finish, loopPrompt, mode, model, pong, prompt, same, shell, twoPrompt } from './checks.mjs';

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });
const parameters = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] };
const tools = [{ type: 'function', name: 'bash', description: 'run a shell command', parameters, strict: false }];
const text = (response) => response.output.flatMap((item) => item.content ?? []).map((part) => part.text).join('');
const ends = new Set(['response.completed', 'response.failed', 'response.incomplete', 'error']);

// One connection; a response is asked for when the one before it has ended.
const socket = () => {
  const ws = new ResponsesWS(client);
  let tell;
  ws.on('event', (event) => ends.has(event.type) && tell.resolve(event));
  ws.on('error', (error) => tell.reject(error));
  const ask = async (asked) => {
    const event = await new Promise((resolve, reject) => {
      tell = { resolve, reject };
      ws.send({ type: 'response.create', model, ...asked });
    });
    if (event.type !== 'response.completed') throw new Error(JSON.stringify(event));
    return event.response;
  };
  return { ask, close: () => ws.close() };
};
const over = async (call) => {
  const connection = socket();
  try { return await call(connection.ask); } finally { connection.close(); }
};
const http = (asked) => client.responses.create({ model, ...asked });
const streamed = async (asked) => (await client.responses.stream({ model, ...asked }).finalResponse());

const loop = async (ask, input) => {
  let response = await ask({ input, tools });
  const ids = [];
  for (let calls; (calls = response.output.filter((item) => item.type === 'function_call')).length;) {
    ids.push(...calls.map((call) => call.call_id));
    const results = calls.map((call) => ({ type: 'function_call_output', call_id: call.call_id, output: shell(JSON.parse(call.arguments).command) }));
    response = await ask({ previous_response_id: response.id, input: results, tools });
  }
  same(new Set(ids).size, ids.length);
  return { said: text(response), calls: ids.length };
};

const ways = [['responses', (call) => call(http)], ['stream', (call) => call(streamed)], ['websocket', over]];
for (const [name, way] of ways) {
  if (mode === 'text') {
    await check(`${name} two turns`, () => way(async (ask) => {
      const first = await ask({ input: prompt('sim: say PONG') });
      pong(text(first));
      pong(text(await ask({ input: prompt('sim: say PONG'), previous_response_id: first.id })));
    }));
    await check(`${name} refused`, () => fails(() => way((ask) => ask({ input: prompt('sim: fail rate_limit') })), (error) => /429|rate_limit/.test(`${error.status} ${error}`)));
    continue;
  }
  await check(`${name} loop`, () => way(async (ask) => final((await loop(ask, loopPrompt('bash'))).said)));
  if (mode === 'tool') {
    await check(`${name} two calls at once`, () => way(async (ask) => {
      const { said, calls } = await loop(ask, twoPrompt('bash'));
      same(calls, 2);
      both(said);
    }));
    await check(`${name} ten steps`, () => way(async (ask) => {
      const steps = Array.from({ length: 10 }, (_, n) => `sim: call bash {"command": "echo ${n}"}`);
      const { said, calls } = await loop(ask, prompt(...steps, 'sim: say PONG'));
      same(calls, 10);
      pong(said);
    }));
  }
}
finish();
