// Prints what a program can see of itself, as it would be if nobody had been at its start.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals)
	own, err := os.Executable()
	if err != nil {
		panic(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if words := strings.Fields(line); len(words) == 2 {
			switch words[0] {
			case "Name:", "TracerPid:", "SigPnd:", "ShdPnd:", "SigBlk:":
				fmt.Println(line)
			}
		}
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil && strings.Contains(string(maps), "libyasmin.so") {
		fmt.Fprintln(os.Stderr, "has the library")
	}
	fmt.Println("signals:", len(signals))
	signal.Reset()
	fmt.Println("starts another one:", exec.Command("true").Run())
	var child syscall.WaitStatus
	_, err = syscall.Wait4(-1, &child, syscall.WNOHANG, nil)
	fmt.Println(filepath.Base(own), os.Args[1:], os.Getpid(), err)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		if to, err := os.Readlink("/proc/self/fd/" + file.Name()); err == nil {
			fmt.Println(file.Name(), strings.SplitN(to, ":", 2)[0])
		}
	}
}
