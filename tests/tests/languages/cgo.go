// Makes the program need libc, as programs with cgo do.
package main

// #include <stdlib.h>
import "C"

var _ = C.abs(1)
