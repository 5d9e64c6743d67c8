using System;
using System.Net;
using System.Net.Sockets;

/** An echo by a socket's asynchronous calls; says `port NUMBER`. */
class Echo {
    readonly Socket socket;
    readonly byte[] room = new byte[65536];

    Echo(Socket one) {
        socket = one;
    }

    void Read() {
        socket.BeginReceive(room, 0, room.Length, SocketFlags.None, OnRead, null);
    }

    void OnRead(IAsyncResult result) {
        try {
            int length = socket.EndReceive(result);
            if (length == 0) {
                socket.Close();
                return;
            }
            for (int done = 0; done < length; )
                done += socket.Send(room, done, length - done, SocketFlags.None);
            Read();
        } catch (SocketException) {
            socket.Close();
        }
    }

    static void Main() {
        var server = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        server.Bind(new IPEndPoint(IPAddress.Any, 0));
        server.Listen(1024);
        Console.WriteLine("port " + ((IPEndPoint)server.LocalEndPoint).Port);
        while (true) {
            var one = server.Accept();
            one.NoDelay = true;
            new Echo(one).Read();
        }
    }
}
