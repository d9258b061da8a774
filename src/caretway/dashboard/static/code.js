// A chat completion as code to paste: curl, Python, TypeScript. Pure.

const KEY = "CARETWAY_API_KEY";

export function asCurl(address, body, key) {
  const lines = [`curl -N ${address}/v1/chat/completions`];
  if (key) lines.push(`-H "Authorization: Bearer $${KEY}"`);
  lines.push(`-H 'Content-Type: application/json'`);
  lines.push(`-d '${escaped(JSON.stringify(body, null, 2)).replaceAll("'", `'\\''`)}'`);
  return lines.join(" \\\n  ");
}

export function asPython(address, body, key) {
  const values = Object.entries(body).map(([name, value]) => `    ${name}=${python(value, 1)},`);
  return [
    key && "import os",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${quoted(`${address}/v1`)}, api_key=${key ? `os.environ["${KEY}"]` : '"local"'})`,
    "stream = client.chat.completions.create(",
    ...values,
    ")",
    "for chunk in stream:",
    "    for choice in chunk.choices:",
    '        print(choice.delta.content or "", end="", flush=True)',
  ]
    .filter((line) => line !== false && line !== undefined)
    .join("\n");
}

export function asTypeScript(address, body, key) {
  return [
    'import OpenAI from "openai";',
    "",
    `const client = new OpenAI({ baseURL: ${quoted(`${address}/v1`)}, apiKey: ${key ? `process.env.${KEY}!` : '"local"'} });`,
    `const request: OpenAI.ChatCompletionCreateParamsStreaming = ${escaped(JSON.stringify(body, null, 2))};`,
    "for await (const chunk of await client.chat.completions.create(request)) {",
    '  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");',
    "}",
  ].join("\n");
}

/** A JSON value as a Python literal. */
function python(value, depth) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return typeof value === "string" ? quoted(value) : String(value);
  const list = Array.isArray(value);
  const items = list
    ? value.map((one) => python(one, depth + 1))
    : Object.entries(value).map(([name, one]) => `${quoted(name)}: ${python(one, depth + 1)}`);
  const [open, close] = list ? "[]" : "{}";
  const flat = `${open}${items.join(", ")}${close}`;
  if (flat.length + depth * 4 < 80 && !flat.includes("\n")) return flat;
  const indent = "    ".repeat(depth + 1);
  return `${open}\n${items.map((item) => `${indent}${item},\n`).join("")}${"    ".repeat(depth)}${close}`;
}

const quoted = (text) => escaped(JSON.stringify(text));
/** Escapes characters that JSON allows but that end a line or change the direction of code on a screen. */
const escaped = (json) =>
  json.replace(/[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
