// Arguments: where @bitkyc08/opencodex is installed, then `serve PORT`, or `models ADDRESS TOKEN HTTP-VERSION`.
const [home, command, ...rest] = process.argv.slice(2);
const source = `${home}/node_modules/@bitkyc08/opencodex/src`;
if (command === "serve") {
  const { startServer } = await import(`${source}/index.ts`);
  startServer(Number(rest[0]));
} else {
  const { fetchCursorUsableModels } = await import(`${source}/adapters/cursor/live-models.ts`);
  const [baseUrl, apiKey, version] = rest;
  const upstreamHttpVersion = version === "1.1" ? "http1.1" : undefined;
  console.log(`\t${JSON.stringify(await fetchCursorUsableModels({ apiKey, baseUrl, timeoutMs: 10_000, upstreamHttpVersion }))}`);
  process.exit(0);
}
