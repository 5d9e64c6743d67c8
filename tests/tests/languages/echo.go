// echo.go listen | connect HOST PORT
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
)

func main() {
	if os.Args[1] == "listen" {
		listener, err := net.Listen("tcp4", ":0")
		check(err)
		fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
		for {
			one, err := listener.Accept()
			check(err)
			go func() {
				buffer := make([]byte, 65536)
				io.CopyBuffer(struct{ io.Writer }{one}, struct{ io.Reader }{one}, buffer)
				one.Close()
			}()
		}
	}
	results := make(chan error)
	for nth := range 4 {
		go func() { results <- connect(int64(nth)) }()
	}
	for range 4 {
		check(<-results)
	}
	fmt.Println("same")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect(seed int64) error {
	random := rand.New(rand.NewSource(seed))
	to, err := net.Dial("tcp4", os.Args[2]+":"+os.Args[3])
	if err != nil {
		return err
	}
	for nth := range 400 {
		most := 200
		if nth%10 == 0 {
			most = 60000
		}
		sent := make([]byte, 1+random.Intn(most))
		random.Read(sent)
		if _, err := to.Write(sent); err != nil {
			return err
		}
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(to, got); err != nil {
			return err
		}
		if !bytes.Equal(sent, got) {
			return fmt.Errorf("the echo differs")
		}
	}
	if err := to.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if n, err := to.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return fmt.Errorf("after the end: %d, %v", n, err)
	}
	return nil
}
