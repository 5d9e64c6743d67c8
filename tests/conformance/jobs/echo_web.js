// As echo.c, by Bun.serve and fetch: each message is a request's body and comes back as its answer's.

import { addressAndLoad, askAll, messages, same } from "./load.mjs";

function serve() {
  return Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => new Response(await request.arrayBuffer()),
  }).port;
}

async function ask(port, number, { exchanges, mostBytes }) {
  const next = messages(number, mostBytes);
  for (let done = 0; done < exchanges; done++) {
    const message = next();
    const answer = await fetch(`http://127.0.0.1:${port}/`, { method: "POST", body: message });
    const bytes = Buffer.from(await answer.arrayBuffer());
    if (bytes.length !== message.length || !same(message, 0, bytes)) throw new Error("bytes differ");
  }
}

const { port, load } = await addressAndLoad(serve);
if (load) await askAll((number) => ask(port, number, load), load);
