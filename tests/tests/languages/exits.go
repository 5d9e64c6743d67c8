// A client that ends without closing, with bytes unread: the connection is reset.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	turns  = 5
	rounds = 200
	bytes  = 1000
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func client(address string) {
	connection, err := net.Dial("tcp", address)
	check(err)
	all := make([]byte, bytes)
	for range rounds {
		_, err = io.ReadFull(connection, all)
		check(err)
		_, err = connection.Write(all)
		check(err)
	}
	// The last ones are here by then.
	time.Sleep(50 * time.Millisecond)
	_, err = connection.Read(all[:1])
	check(err)
	os.Exit(0)
}

func main() {
	if len(os.Args) > 1 {
		client(os.Args[1])
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	own, err := os.Executable()
	check(err)
	for range turns {
		peer := exec.Command(own, listener.Addr().String())
		peer.Stderr = os.Stderr
		check(peer.Start())
		connection, err := listener.Accept()
		check(err)
		all := make([]byte, bytes)
		for range rounds {
			_, err = connection.Write(all)
			check(err)
			_, err = io.ReadFull(connection, all)
			check(err)
		}
		_, err = connection.Write(all)
		check(err)
		if _, err = connection.Read(all); !errors.Is(err, syscall.ECONNRESET) {
			panic(fmt.Sprint("no reset: ", err))
		}
		check(peer.Wait())
		check(connection.Close())
	}
	fmt.Println("all there")
}
