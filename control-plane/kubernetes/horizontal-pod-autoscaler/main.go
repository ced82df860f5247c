// Program horizontal-pod-autoscaler answers for the original what its autoscaler does in a situation: it reads one
// situation per line and writes one answer per line, both as JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"keleustes.invalid/control-plane/kubernetes/podautoscaler"
)

func main() {
	situations := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	writer := bufio.NewWriterSize(os.Stdout, 1<<20)
	answers := json.NewEncoder(writer)
	answers.SetEscapeHTML(false)
	for situations.More() {
		var situation podautoscaler.Situation
		if err := situations.Decode(&situation); err != nil {
			fail(err)
		}
		if err := answers.Encode(situation.Answer()); err != nil {
			fail(err)
		}
		if err := writer.Flush(); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
