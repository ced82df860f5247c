// Command cron answers which times schedules have, as the original computes them: one JSON request per line of
// standard input, one JSON answer per line of standard output.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/robfig/cron/v3"
)

type request struct {
	Schedule string  `json:"schedule"`
	After    []int64 `json:"after"`
}

type answer struct {
	Error string   `json:"error,omitempty"`
	Next  []*int64 `json:"next,omitempty"`
}

// parse turns a panic into an error, as the original does.
func parse(text string) (schedule cron.Schedule, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("invalid schedule format: %v", reason)
		}
	}()
	return cron.ParseStandard(text)
}

func next(asked request) answer {
	schedule, err := parse(asked.Schedule)
	if err != nil {
		return answer{Error: err.Error()}
	}
	var given answer
	for _, after := range asked.After {
		var found *int64
		if next := schedule.Next(time.Unix(after, 0)); !next.IsZero() {
			seconds := next.Unix()
			found = &seconds
		}
		given.Next = append(given.Next, found)
	}
	return given
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	answers := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(answers)
	encoder.SetEscapeHTML(false)
	for lines.Scan() {
		var asked request
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			err = encoder.Encode(next(asked))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := answers.Flush(); err != nil {
		os.Exit(1)
	}
}
