// As echo.c, by node:net.

import net from "node:net";

import { addressAndLoad, askAll, messages, same } from "./load.mjs";

function serve() {
  return new Promise((resolve) => {
    const server = net.createServer({ allowHalfOpen: true }, (socket) => {
      socket.setNoDelay(true);
      socket.pipe(socket);
    });
    server.listen({ host: "127.0.0.1", port: 0, backlog: 1024 }, () => resolve(server.address().port));
  });
}

function ask(port, number, { exchanges, mostBytes }) {
  return new Promise((resolve, reject) => {
    const next = messages(number, mostBytes);
    let message, received, done = 0;
    const socket = net.connect({ host: "127.0.0.1", port, noDelay: true });
    const send = () => {
      [message, received] = [next(), 0];
      socket.write(message);
    };
    socket.on("connect", send);
    socket.on("data", (bytes) => {
      if (!same(message, received, bytes)) return reject(new Error("bytes differ"));
      received += bytes.length;
      if (received < message.length) return;
      if (++done < exchanges) send();
      else socket.end();
    });
    socket.on("error", reject);
    socket.on("close", () => {
      if (done === exchanges) resolve();
      else reject(new Error("closed early"));
    });
  });
}

const { port, load } = await addressAndLoad(serve);
if (load) await askAll((number) => ask(port, number, load), load);
