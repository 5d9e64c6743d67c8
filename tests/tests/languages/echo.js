// echo.js listen | connect HOST PORT
const net = require('net');
const crypto = require('crypto');
const [, , what, host, port] = process.argv;

function connect() {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port, noDelay: true, allowHalfOpen: true });
    let left = 400;
    let wanted = Buffer.alloc(0);
    let got = [];
    let length = 0;
    const next = () => {
      if (left-- === 0) return socket.end();
      wanted = crypto.randomBytes(1 + crypto.randomInt(left % 10 ? 200 : 60000));
      got = [];
      length = 0;
      socket.write(wanted);
    };
    socket.on('connect', next);
    socket.on('error', reject);
    socket.on('data', (data) => {
      got.push(data);
      length += data.length;
      if (length < wanted.length) return;
      if (!Buffer.concat(got).equals(wanted)) reject(new Error('the echo differs'));
      next();
    });
    socket.on('end', () => (left < 0 ? resolve() : reject(new Error('ended early'))));
  });
}

if (what === 'listen') {
  const server = net.createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket));
  server.listen(0, '0.0.0.0', () => console.log(`port ${server.address().port}`));
} else {
  Promise.all([connect(), connect(), connect(), connect()]).then(
    () => console.log('same'),
    (error) => { console.error(error); process.exit(1); },
  );
}
