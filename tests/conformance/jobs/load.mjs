// What echo's jobs in JavaScript have in common: their arguments and the messages.

// "serve", "ask PORT CONNECTIONS EXCHANGES BYTES" or "both CONNECTIONS EXCHANGES BYTES". Without a
// load this process goes on serving.
export async function addressAndLoad(serve) {
  const [what, ...rest] = process.argv.slice(2);
  const port = what === "ask" ? Number(rest.shift()) : await serve();
  if (what === "serve") {
    process.stdout.write(`${port}\n`);
    return { port };
  }
  const [connections, exchanges, mostBytes] = rest.map(Number);
  return { port, load: { connections, exchanges, mostBytes } };
}

// Makes one connection's messages, one a call: 1 to mostBytes bytes that no other connection has.
export function messages(number, mostBytes) {
  let seed = 2463534242 + number;
  const next = () => {
    seed ^= seed << 13;
    seed ^= seed >>> 17;
    seed ^= seed << 5;
    return seed >>> 0;
  };
  return () => {
    const message = Buffer.alloc(1 + (next() % mostBytes));
    for (let at = 0; at < message.length; at++) message[at] = next();
    return message;
  };
}

// Whether `bytes` are the message's from `at` on.
export function same(message, at, bytes) {
  if (at + bytes.length > message.length) return false;
  return message.compare(bytes, 0, bytes.length, at, at + bytes.length) === 0;
}

// All connections at once; ends the process.
export async function askAll(ask, { connections }) {
  try {
    await Promise.all(Array.from({ length: connections }, (_, number) => ask(number)));
  } catch (error) {
    console.log(error);
    process.exit(1);
  }
  console.log("all came back");
  process.exit(0);
}
