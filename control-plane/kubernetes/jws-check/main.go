// Program jws-check answers for the original which bootstrap tokens sign cluster-info, how long they last and which
// signatures kubeadm accepts: one JSON question per line of standard input, one JSON answer per line of standard output.
// With -generate it prints vectors instead.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/cluster-bootstrap/util/secrets"
)

type signature struct {
	Content string `json:"content"`
	ID      string `json:"id"`
	// base64, because a secret need not be UTF-8
	Secret string `json:"secret"`
	JWS    string `json:"jws"`
}

type question struct {
	// Nanoseconds since 1970.
	Now     int64       `json:"now"`
	Content string      `json:"content"`
	Tokens  []v1.Secret `json:"tokens"`
	// The signatures of the other program by token id.
	Signatures map[string]string `json:"signatures"`
	// Times to parse, as bytes.
	Times [][]byte `json:"times"`
}

type expiration struct {
	Remaining int64 `json:"remaining"`
	Expired   bool  `json:"expired"`
}

type instant struct {
	Seconds     int64 `json:"seconds"`
	Nanoseconds int   `json:"nanoseconds"`
}

type answer struct {
	// By token id.
	Signatures  map[string]string `json:"signatures"`
	Expirations []expiration      `json:"expirations"`
	// The ids whose signature kubeadm does not accept.
	Refused []string `json:"refused"`
	// null where a time cannot be parsed.
	Times []*instant `json:"times"`
}

// What the copied code takes for the present.
var clock time.Time

func (asked question) answer() (answer, error) {
	clock = time.Unix(0, asked.Now)
	given := answer{Signatures: map[string]string{}, Expirations: []expiration{}, Refused: []string{}, Times: []*instant{}}
	keys := map[string]string{}
	for i := range asked.Tokens {
		token := &asked.Tokens[i]
		remaining, expired := secrets.GetExpiration(token, clock)
		given.Expirations = append(given.Expirations, expiration{int64(remaining), expired})
		keys[secrets.GetData(token, bootstrapapi.BootstrapTokenIDKey)] = secrets.GetData(token, bootstrapapi.BootstrapTokenSecretKey)
		id, secret, signs := validateSecretForSigning(context.Background(), token)
		if !signs {
			continue
		}
		made, err := jws.ComputeDetachedSignature(asked.Content, id, secret)
		if err != nil {
			return given, err
		}
		given.Signatures[id] = made
	}
	for id, made := range asked.Signatures {
		if !jws.DetachedTokenIsValid(made, asked.Content, id, keys[id]) {
			given.Refused = append(given.Refused, id)
		}
	}
	for _, text := range asked.Times {
		var found *instant
		if parsed, err := time.Parse(time.RFC3339, string(text)); err == nil {
			found = &instant{parsed.Unix(), parsed.Nanosecond()}
		}
		given.Times = append(given.Times, found)
	}
	return given, nil
}

func main() {
	generate := flag.Bool("generate", false, "print vectors")
	flag.Parse()
	if *generate {
		printVectors()
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answers := bufio.NewWriter(os.Stdout)
	defer answers.Flush()
	encoder := json.NewEncoder(answers)
	for lines.Scan() {
		var asked question
		err := json.Unmarshal(lines.Bytes(), &asked)
		given := answer{}
		if err == nil {
			given, err = asked.answer()
		}
		if err == nil {
			err = encoder.Encode(given)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
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
