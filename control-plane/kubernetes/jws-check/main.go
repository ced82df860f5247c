// Reads detached signatures and expiration times from standard input, one JSON object per line, and checks them with the
// code by which kubeadm verifies cluster-info and by which Go parses times. With -generate it prints vectors instead.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/cluster-bootstrap/token/jws"
)

type signature struct {
	Content string `json:"content"`
	ID      string `json:"id"`
	// base64, because a secret need not be UTF-8
	Secret string `json:"secret"`
	JWS    string `json:"jws"`
}

type line struct {
	Signature *signature `json:"signature,omitempty"`
	// A text, and the nanoseconds since 1970 it stands for; null if it cannot be parsed.
	Time *struct {
		Text        string `json:"text"`
		Seconds     *int64 `json:"seconds"`
		Nanoseconds *int64 `json:"nanoseconds"`
	} `json:"time,omitempty"`
}

func main() {
	generate := flag.Bool("generate", false, "print vectors")
	flag.Parse()
	if *generate {
		printVectors()
		return
	}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<24)
	checked, wrong := 0, 0
	for input.Scan() {
		var l line
		if err := json.Unmarshal(input.Bytes(), &l); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if problem := l.problem(); problem != "" {
			fmt.Println(problem)
			wrong++
		}
		checked++
	}
	fmt.Printf("%d checked, %d wrong\n", checked, wrong)
	if wrong > 0 || checked == 0 {
		os.Exit(1)
	}
}

func (l line) problem() string {
	if s := l.Signature; s != nil {
		secret, err := base64.StdEncoding.DecodeString(s.Secret)
		if err != nil || !jws.DetachedTokenIsValid(s.JWS, s.Content, s.ID, string(secret)) {
			return fmt.Sprintf("%q is no signature of %q by %s", s.JWS, s.Content, s.ID)
		}
		return ""
	}
	parsed, err := time.Parse(time.RFC3339, l.Time.Text)
	if (err == nil) != (l.Time.Seconds != nil) {
		return fmt.Sprintf("%q: Go says %v, %v", l.Time.Text, parsed, err)
	}
	if err == nil && (parsed.Unix() != *l.Time.Seconds || int64(parsed.Nanosecond()) != *l.Time.Nanoseconds) {
		return fmt.Sprintf("%q: Go says %d s %d ns", l.Time.Text, parsed.Unix(), parsed.Nanosecond())
	}
	return ""
}

func printVectors() {
	cases := []signature{
		{Content: "apiVersion: v1\nkind: Config\n", ID: "07401b", Secret: "f395accd246ae52d"},
		{Content: "", ID: "abcdef", Secret: "0123456789abcdef"},
		{Content: "content", ID: "000000", Secret: "x"},
		{Content: "content", ID: "a1b2c3", Secret: "0123456789abcdef\n"},
		{Content: "größer\x00 & <kleiner> \"\\\n", ID: "zzzzzz", Secret: "\xff\xfe\x00"},
		{Content: "content", ID: "long00", Secret: "a secret that is much longer than the 64 bytes of one block of SHA-256 is hashed first"},
	}
	for i, c := range cases {
		made, err := jws.ComputeDetachedSignature(c.Content, c.ID, c.Secret)
		if err != nil {
			panic(err)
		}
		cases[i].JWS, cases[i].Secret = made, base64.StdEncoding.EncodeToString([]byte(c.Secret))
	}
	printed, _ := json.MarshalIndent(cases, "", "  ")
	fmt.Println(string(printed))
}
