// Program cron-jobs answers for the original what its controller does with a CronJob: it reads one step per line and
// writes one result per line, both as JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"keleustes.invalid/control-plane/kubernetes/cronjob"
)

func main() {
	steps := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	writer := bufio.NewWriterSize(os.Stdout, 1<<20)
	results := json.NewEncoder(writer)
	results.SetEscapeHTML(false)
	for steps.More() {
		var step cronjob.Step
		if err := steps.Decode(&step); err != nil {
			fail(err)
		}
		result, err := step.Sync()
		if err != nil {
			fail(err)
		}
		if err := results.Encode(result); err != nil {
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
