// busy.go listen | connect HOST PORT
//
// Connections whose every byte is checked, while the program does what Go's runtime makes hard: collects
// garbage, is interrupted by a profiler, starts programs and fails to, ends threads, lets reads run into
// deadlines, copies descriptors, and has the kernel splice.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const connections = 8
const rounds = 300

func main() {
	if os.Args[1] == "listen" {
		listener, err := net.Listen("tcp", "0.0.0.0:0")
		check(err)
		fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
		for {
			one, err := listener.Accept()
			check(err)
			go serve(one.(*net.TCPConn), listener.Addr().(*net.TCPAddr).Port)
		}
	}
	check(pprof.StartCPUProfile(io.Discard))
	var ends atomic.Bool
	var beside sync.WaitGroup
	for _, one := range []func(){garbage, startsProgram, endsThread} {
		beside.Add(1)
		go func() {
			defer beside.Done()
			for !ends.Load() {
				one()
			}
		}()
	}
	results := make(chan error)
	for nth := range connections {
		go func() { results <- connect(int64(nth)) }()
	}
	for range connections {
		check(<-results)
	}
	ends.Store(true)
	beside.Wait()
	pprof.StopCPUProfile()
	fmt.Println("same")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The first byte says whether the rest comes back from here or by way of another connection.
func serve(one *net.TCPConn, port int) {
	defer one.Close()
	kind := make([]byte, 1)
	if _, err := io.ReadFull(one, kind); err != nil {
		return
	}
	if kind[0] == 'e' {
		io.CopyBuffer(struct{ io.Writer }{one}, struct{ io.Reader }{one}, make([]byte, 65536))
		one.CloseWrite()
		return
	}
	behind, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	check(err)
	defer behind.Close()
	_, err = behind.Write([]byte("e"))
	check(err)
	back := make(chan struct{})
	go func() {
		io.Copy(one, behind)
		one.CloseWrite()
		close(back)
	}()
	io.Copy(behind, one)
	behind.CloseWrite()
	<-back
}

var kept [64][]byte

func garbage() {
	for i := range kept {
		kept[i] = make([]byte, 1+rand.Intn(1<<16))
	}
	runtime.GC()
}

func startsProgram() {
	check(exec.Command("/bin/true").Run())
	if err := exec.Command("/nonexistent").Run(); !errors.Is(err, syscall.ENOENT) {
		check(fmt.Errorf("a program that is not there: %v", err))
	}
	time.Sleep(time.Millisecond)
}

// A goroutine that ends on a locked thread ends the thread.
func endsThread() {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err == nil {
			_, err = syscall.Write(pair[0], []byte("x"))
			syscall.Close(pair[0])
			syscall.Close(pair[1])
		}
		done <- err
	}()
	check(<-done)
	time.Sleep(100 * time.Microsecond)
}

func connect(seed int64) error {
	random := rand.New(rand.NewSource(seed))
	dialed, err := net.Dial("tcp", os.Args[2]+":"+os.Args[3])
	if err != nil {
		return err
	}
	to := dialed.(*net.TCPConn)
	defer to.Close()
	kind := "e"
	if seed%2 == 1 {
		kind = "p"
	}
	if _, err := to.Write([]byte(kind)); err != nil {
		return err
	}
	for nth := range rounds {
		most := 200
		if nth%10 == 0 {
			most = 200000
		}
		sent := make([]byte, 1+random.Intn(most))
		random.Read(sent)
		wrote := make(chan error)
		go func() {
			_, err := to.Write(sent)
			wrote <- err
		}()
		got, err := receive(to, len(sent), nth%3 == 0)
		if err != nil {
			return err
		}
		if err := <-wrote; err != nil {
			return err
		}
		if !bytes.Equal(sent, got) {
			return fmt.Errorf("connection %d, round %d: the echo differs", seed, nth)
		}
		if nth%50 == 49 {
			if err := copies(to); err != nil {
				return err
			}
		}
	}
	if err := to.CloseWrite(); err != nil {
		return err
	}
	if n, err := to.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return fmt.Errorf("after the end: %d, %v", n, err)
	}
	return nil
}

// With deadlines: reads that end by them are tried again.
func receive(from *net.TCPConn, size int, deadlines bool) ([]byte, error) {
	got := make([]byte, size)
	for at := 0; at < size; {
		if deadlines {
			from.SetReadDeadline(time.Now().Add(200 * time.Microsecond))
		} else {
			from.SetReadDeadline(time.Now().Add(60 * time.Second))
		}
		n, err := from.Read(got[at:])
		at += n
		if err != nil && !(deadlines && errors.Is(err, os.ErrDeadlineExceeded)) {
			return nil, err
		}
	}
	return got, nil
}

// Another descriptor of the connection, for a moment.
func copies(one *net.TCPConn) error {
	file, err := one.File()
	if err != nil {
		return err
	}
	return file.Close()
}
