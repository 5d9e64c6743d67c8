import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;

/** An echo by blocking calls, each connection in a virtual thread; says `port NUMBER`. */
public class Virtual {
    static void echo(Socket one) {
        try (one) {
            one.setTcpNoDelay(true);
            var input = one.getInputStream();
            var output = one.getOutputStream();
            byte[] room = new byte[65536];
            for (int length; (length = input.read(room)) >= 0; ) {
                output.write(room, 0, length);
            }
        } catch (IOException ignored) {
            // It is gone.
        }
    }

    public static void main(String[] words) throws IOException {
        var server = new ServerSocket(0, 1024);
        System.out.println("port " + server.getLocalPort());
        while (true) {
            var one = server.accept();
            Thread.startVirtualThread(() -> echo(one));
        }
    }
}
