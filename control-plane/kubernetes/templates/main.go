// Program templates answers for the original what becomes of pod templates: the fields it knows, the hash it
// computes, the revision data it writes and which templates it takes for equal.
//
//	templates fields   prints the table of all fields of a pod template
//	templates answer   reads one question per line and writes one answer per line, both as JSON
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: %s fields|answer", os.Args[0]))
	}
	var err error
	switch os.Args[1] {
	case "fields":
		err = printFields(os.Stdout)
	case "answer":
		err = answerAll(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("unknown command %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func answerAll(in *os.File, out *os.File) error {
	// Times are printed with the local zone, which Go loads on first use, as any log line does.
	time.Now().Local().Zone()
	questions := json.NewDecoder(bufio.NewReaderSize(in, 1<<20))
	writer := bufio.NewWriterSize(out, 1<<20)
	answers := json.NewEncoder(writer)
	answers.SetEscapeHTML(false)
	for questions.More() {
		var question Question
		if err := questions.Decode(&question); err != nil {
			return err
		}
		if err := answers.Encode(question.answer()); err != nil {
			return err
		}
		if err := writer.Flush(); err != nil {
			return err
		}
	}
	return nil
}
