// As echo.c, by Bun.listen and Bun.connect.

import { addressAndLoad, askAll, messages, same } from "./load.mjs";

// What could not be written yet, in order.
function write(socket, bytes) {
  const left = socket.data.left;
  if (!left.length) bytes = bytes.subarray(Math.max(socket.write(bytes), 0));
  if (bytes.length) left.push(Buffer.from(bytes));
}

function drain(socket) {
  const left = socket.data.left;
  while (left.length) {
    left[0] = left[0].subarray(Math.max(socket.write(left[0]), 0));
    if (left[0].length) return;
    left.shift();
  }
  if (socket.data.isEnding) socket.end();
}

function serve() {
  return Bun.listen({
    hostname: "127.0.0.1",
    port: 0,
    allowHalfOpen: true,
    socket: {
      open(socket) {
        socket.setNoDelay(true);
        socket.data = { left: [], isEnding: false };
      },
      data: write,
      drain,
      end(socket) {
        socket.data.isEnding = true;
        drain(socket);
      },
    },
  }).port;
}

function ask(port, number, { exchanges, mostBytes }) {
  return new Promise((resolve, reject) => {
    const next = messages(number, mostBytes);
    let message, received, done = 0;
    const send = (socket) => {
      [message, received] = [next(), 0];
      write(socket, message);
    };
    Bun.connect({
      hostname: "127.0.0.1",
      port,
      allowHalfOpen: true,
      socket: {
        open(socket) {
          socket.setNoDelay(true);
          socket.data = { left: [], isEnding: false };
          send(socket);
        },
        data(socket, bytes) {
          if (!same(message, received, bytes)) return reject(new Error("bytes differ"));
          received += bytes.length;
          if (received < message.length) return;
          if (++done < exchanges) send(socket);
          else socket.shutdown();
        },
        drain,
        end(socket) {
          socket.end();
        },
        close() {
          if (done === exchanges) resolve();
          else reject(new Error("closed early"));
        },
        error: (_, error) => reject(error),
      },
    }).catch(reject);
  });
}

const { port, load } = await addressAndLoad(serve);
if (load) await askAll((number) => ask(port, number, load), load);
