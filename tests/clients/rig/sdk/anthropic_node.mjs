// anthropic-node: create, the stream helper, tool loops, errors.
import Anthropic from '@anthropic-ai/sdk';
import { apiKey, base, both, check, fails, final, finish, loopPrompt, mode, model, pong, prompt, same, shell, twoPrompt } from './checks.mjs';

const client = new Anthropic({ baseURL: base, apiKey, maxRetries: 0 });
const input_schema = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] };
const tools = [{ name: 'bash', description: 'run a shell command', input_schema }];
const text = (message) => message.content.filter((block) => block.type === 'text').map((block) => block.text).join('');
const given = (asked) => ({ model, max_tokens: 1000, ...asked });
const ways = {
  create: (asked) => client.messages.create(given(asked)),
  stream: (asked) => client.messages.stream(given(asked)).finalMessage(),
};

const loop = async (ask, content) => {
  const messages = [{ role: 'user', content }];
  for (let most = 0; ;) {
    const answer = await ask({ messages, tools });
    const calls = answer.content.filter((block) => block.type === 'tool_use');
    same(answer.stop_reason, calls.length ? 'tool_use' : 'end_turn');
    if (!calls.length) return { said: text(answer), most };
    most = Math.max(most, calls.length);
    const results = calls.map((call) => ({ type: 'tool_result', tool_use_id: call.id, content: shell(call.input.command) }));
    messages.push({ role: 'assistant', content: answer.content }, { role: 'user', content: results });
  }
};

for (const [name, ask] of Object.entries(ways)) {
  const say = (...lines) => ask({ messages: [{ role: 'user', content: prompt(...lines) }] });
  if (mode === 'text') {
    await check(`${name} text`, async () => pong(text(await say('sim: say PONG'))));
    await check(`${name} refused`, () => fails(() => say('sim: fail rate_limit'), (error) => error instanceof Anthropic.RateLimitError));
    continue;
  }
  await check(`${name} loop`, async () => final((await loop(ask, loopPrompt('bash'))).said));
  if (mode === 'tool') {
    await check(`${name} two calls at once`, async () => {
      const { said, most } = await loop(ask, twoPrompt('bash'));
      same(most, 2);
      both(said);
    });
  }
}
finish();
