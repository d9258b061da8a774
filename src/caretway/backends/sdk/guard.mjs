/**
 * Limits the connections of the SDK's process to Cursor's hosts. Preloaded with `node --import`, before the SDK, whose
 * built-in tools obey every request of the server.
 *
 * Every connection of Node's own modules passes two checks. The first sees the requested name; the second, at the
 * handle below net, tls, http, http2 and fetch, sees the resolved address. So neither a redirect nor a name that
 * resolves to another address (DNS rebinding, SSRF) leads elsewhere. A name lookup sends data, too, so only allowed
 * names are looked up.
 *
 * This is JavaScript in the process that it guards: it protects against a server's requests, not against hostile code.
 * Node's permissions limit files, processes, addons and threads (bridge.py).
 */
import { ChildProcess } from "node:child_process";
import dgram from "node:dgram";
import dns from "node:dns";
import { writeSync } from "node:fs";
import { registerHooks, syncBuiltinESMExports } from "node:module";
import net from "node:net";
import { getSystemErrorMap } from "node:util";

/**
 * @typedef {object} Egress
 * @property {string[]} own `host:port` of each address in the settings, allowed whatever it resolves to
 * @property {string[]} domains Cursor's domains: these and all names below them, only https, only at public addresses
 * @property {string} absent a path without a file, which the SDK may examine
 */
const rules = /** @type {Egress} */ (JSON.parse(process.env.CARETWAY_EGRESS ?? ""));
delete process.env.CARETWAY_EGRESS;

const HTTPS = 443;
const MAX_GRANTED = 1024;
const MAX_TOLD = 20;
const EACCES = [...getSystemErrorMap()].find(([, [name]]) => name === "EACCES")?.[0] ?? -13;
/** Modules that would bypass the checks or Node's permissions. The SDK does not need them. */
const REFUSED = /^(node:)?(cluster|inspector|inspector\/promises|quic|repl|sqlite|trace_events|wasi|worker_threads)$/;

// ---- what may be connected to

/** @param {"ipv4" | "ipv6"} family @param {string[]} networks @returns {net.BlockList} */
function list(family, networks) {
  const listed = new net.BlockList();
  for (const [base, bits] of networks.map((each) => each.split("/"))) listed.addSubnet(base, Number(bits), family);
  return listed;
}
// This machine, private networks, multicast; of IPv6 also addresses that wrap another one. (Without 198.18.0.0/15,
// because local proxies take made-up addresses for names from it.)
const PRIVATE4 = list("ipv4", [
  ...["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"],
  ...["192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"],
]);
const GLOBAL6 = list("ipv6", ["2000::/3"]);
const WRAPPING6 = list("ipv6", ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"]);

/** @param {string} address @returns {boolean} */
const isPublic = (address) =>
  net.isIPv4(address) ? !PRIVATE4.check(address) : GLOBAL6.check(address, "ipv6") && !WRAPPING6.check(address, "ipv6");

/** The form for comparisons: lower case, no final dot. @param {unknown} host @returns {string} */
const plain = (host) => String(host ?? "localhost").toLowerCase().replace(/\.$/, "");

/**
 * A test for the addresses of an allowed name; undefined: connections to the name are not allowed.
 * @param {string} host @param {number} port @returns {((address: string) => boolean) | undefined}
 */
function allowed(host, port) {
  if (rules.own.includes(`${host}:${port}`)) return () => true;
  const cursors = rules.domains.some((domain) => `.${host}`.endsWith(`.${domain}`));
  return cursors && port === HTTPS ? isPublic : undefined;
}

/** Addresses and ports to which an allowed name resolved: the list for the second check. @type {Set<string>} */
const granted = new Set();

/** @param {string} address @param {number} port */
function grant(address, port) {
  granted.add(`${address} ${port}`);
  if (granted.size > MAX_GRANTED) granted.delete([...granted][0]);
}

// ---- refusals

let told = 0;

/** Write to the gateway's log, unless its pipe is full. @param {string} words */
function tell(words) {
  try {
    if (told++ < MAX_TOLD) writeSync(2, `guard: ${words}\n`);
  } catch {} // a full pipe
}

/** @param {string} what @returns {NodeJS.ErrnoException} */
function refusal(what) {
  const words = what.slice(0, 300).replace(/[^\x20-\x7e]/g, "?");
  tell(`refused ${words}`);
  return Object.assign(new Error(`The gateway does not allow this: ${words}`), { code: "ERR_CARETWAY_EGRESS" });
}

/** @param {string} what @returns {(...args: any[]) => any} */
const refuse = (what) => () => {
  throw refusal(what);
};
const deny = () => EACCES; // the form in which handles report errors

/** Replaces a function permanently. @param {any} object @param {string} name @param {Function} value */
const fix = (object, name, value) =>
  Object.defineProperty(object, name, { value, writable: false, configurable: false, enumerable: true });

/** Replaces all functions with matching names. @param {any} object @param {RegExp} names @param {Function} value */
function close(object, names, value) {
  for (const name of Object.getOwnPropertyNames(object)) {
    if (names.test(name) && typeof object[name] === "function") fix(object, name, value);
  }
}

// ---- the second check: handles, taken from sockets that connect to nothing

/** @param {any} socket @returns {any} */
const handleOf = (socket) => Object.getPrototypeOf(socket._handle ?? {});
const nowhere = new net.Socket().connect({ host: "nowhere.invalid", port: 1, lookup: () => {} });
const tcp = handleOf(nowhere);
for (const name of ["connect", "connect6"]) {
  const connect = tcp[name];
  /** @this {unknown} @param {unknown} request @param {string} address @param {number} port */
  const guarded = function (request, address, port) {
    if (granted.has(`${address} ${port}`)) return connect.call(this, request, address, port);
    refusal(`a connection to ${address} port ${port}`);
    return EACCES;
  };
  fix(tcp, name, guarded);
}
close(tcp, /^(bind6?|listen|open)$/, deny);
const absent = new net.Socket().on("error", () => {}).connect({ path: rules.absent });
close(handleOf(absent), /^(bind|connect|listen)$/, deny);
const datagrams = /** @type {any} */ (dgram.createSocket("udp4"));
for (const symbol of Object.getOwnPropertySymbols(datagrams)) {
  close(Object.getPrototypeOf(datagrams[symbol]?.handle ?? {}), /^((bind|connect|send)6?|open)$/, deny);
}
close(handleOf(new dns.Resolver()), /^(query|getHostByAddr|setServers)/, deny);
for (const each of [nowhere, absent]) each.destroy();
datagrams.close();

// ---- the first check: names

const { lookup } = dns;
const connectSocket = net.Socket.prototype.connect;

/** @param {number} port @param {(address: string) => boolean} fits @returns {net.LookupFunction} */
const lookupFor = (port, fits) => (host, options, done) =>
  lookup(host, { ...options, all: true }, (failure, found) => {
    if (failure) return done(failure, []);
    const fitting = found.filter(({ address }) => fits(address));
    if (!fitting.length) return done(refusal(`${host}, which means ${found[0]?.address}: not a public address`), []);
    for (const { address } of fitting) grant(address, port);
    return options.all ? done(null, fitting) : done(null, fitting[0].address, fitting[0].family);
  });

/** @this {net.Socket} @param {any[]} args @returns {net.Socket} */
const connectGuarded = function (...args) {
  const [given, done] = Array.isArray(args[0]) ? args[0] : /** @type {any} */ (net)._normalizeArgs(args);
  const { path, ...rest } = given;
  const [host, port] = [plain(rest.host), Number(rest.port)];
  const fits = path ? undefined : allowed(host, port);
  if (fits === undefined || (net.isIP(host) && !fits(host))) {
    const failure = refusal(`a connection to ${path ? "a socket in the file system" : `${host} port ${port}`}`);
    const fail = (/** @type {any[]} */ ...[, , refused]) => process.nextTick(refused, failure);
    return connectSocket.call(this, { ...rest, host: "refused.invalid", port: 1, lookup: fail }, done);
  }
  if (net.isIP(host)) grant(host, port);
  return connectSocket.call(this, { ...rest, host, port, lookup: lookupFor(port, fits) }, done);
};
fix(net.Socket.prototype, "connect", connectGuarded);
fix(net.Server.prototype, "listen", refuse("to listen"));

const known = new Set(rules.own.map((each) => each.slice(0, each.lastIndexOf(":"))));
for (const module of [dns, dns.promises]) {
  const original = /** @type {any} */ (module.lookup);
  fix(module, "lookup", (/** @type {string} */ host, /** @type {any[]} */ ...rest) => {
    if (!known.has(plain(host)) && !allowed(plain(host), HTTPS)) throw refusal(`to look up ${host}`);
    return original(host, ...rest);
  });
  for (const each of [module, module.Resolver.prototype]) {
    close(each, /^(resolve|reverse|lookupService|setServers)/, refuse("a DNS query"));
  }
}
close(dgram.Socket.prototype, /^(bind|connect|send)$/, refuse("a datagram"));

// ---- ways around the checks

close(process, /^(binding|_linkedBinding|dlopen|execve)$/, refuse("an inner part of Node"));
// Node's permissions refuse it too, but leak three pipes for each attempt. The message is for the model.
fix(ChildProcess.prototype, "spawn", () => {
  throw new Error("This tool is not available here: call one of the tools that the client offers.");
});
const { getBuiltinModule, kill } = process;
fix(process, "kill", (/** @type {number} */ pid, /** @type {unknown} */ signal) =>
  signal === 0 ? kill(pid, 0) : refuse("to signal a process")(),
);
fix(process, "getBuiltinModule", (/** @type {string} */ name) =>
  REFUSED.test(name) ? refuse(`module ${name}`)() : getBuiltinModule(name),
);
registerHooks({
  resolve(specifier, context, next) {
    const found = next(specifier, context);
    return REFUSED.test(found.url) ? refuse(`module ${found.url}`)() : found;
  },
});
syncBuiltinESMExports();

// ---- the process

// The SDK searches the directories above these for its programs, and fails if it may not read them. It also sends its
// working directory to Cursor; the real one may contain the user's name.
process.argv[1] = process.execPath = rules.absent;
process.cwd = () => rules.absent;
// Node would print the line of code that failed, and a line of the SDK has two million characters. Messages of errors
// and the SDK's own output are dropped, because they may contain text of a prompt. Standard output is the gateway's.
const where = (/** @type {any} */ failure) =>
  [`${failure?.name} ${failure?.code ?? ""}`, ...String(failure?.stack).split("\n    at ").slice(1, 6)].join(" < ");
process.on("uncaughtException", (failure) => {
  told = 0; // the last message is always written
  tell(where(failure));
  process.exit(1);
});
process.on("unhandledRejection", (reason) => tell(`unhandled rejection: ${where(reason)}`));
for (const name of Object.keys(console)) Object.assign(console, { [name]: () => {} });
