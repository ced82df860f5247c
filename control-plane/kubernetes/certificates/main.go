// Program certificates signs for the original: one JSON request per line of standard input, one JSON answer per line of
// standard output. It also holds the keys of the requests, and signs these with any algorithm.
package main

import (
	"bufio"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	capi "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/controller/certificates/authority"
)

type request struct {
	Signer   string          `json:"signer"`
	Request  string          `json:"request"`
	Usages   []capi.KeyUsage `json:"usages"`
	Life     int64           `json:"life"`
	Now      int64           `json:"now"`
	CaCert   string          `json:"caCert"`
	CaKey    string          `json:"caKey"`
	Verified string          `json:"verified"`
	// Asks for the public keys.
	Keys bool `json:"keys"`
	// Asks for a signature.
	Sign *signing `json:"sign"`
}

type signing struct {
	// The index of the key.
	Key int `json:"key"`
	// The number of bits of the hash: 160 for SHA-1, else SHA-2; not for Ed25519.
	Hash    int    `json:"hash"`
	Pss     bool   `json:"pss"`
	Message []byte `json:"message"`
}

type answer struct {
	// The step that failed: parse, rule, sign or verify.
	Step        string `json:"step,omitempty"`
	Error       string `json:"error,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	// SubjectPublicKeyInfos.
	Keys      [][]byte `json:"keys,omitempty"`
	Signature []byte   `json:"signature,omitempty"`
}

func failed(step string, err error) answer { return answer{Step: step, Error: err.Error()} }

var keys []crypto.Signer

// publicKeys generates the keys of requests: RSA by size, the curves, Ed25519.
func publicKeys() (answer, error) {
	for _, bits := range []int{1024, 2048, 3072, 4096} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			return answer{}, err
		}
		keys = append(keys, key)
	}
	for _, curve := range []elliptic.Curve{elliptic.P224(), elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			return answer{}, err
		}
		keys = append(keys, key)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return answer{}, err
	}
	keys = append(keys, key)
	given := answer{}
	for _, key := range keys {
		info, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return given, err
		}
		given.Keys = append(given.Keys, info)
	}
	return given, nil
}

func (asked signing) answer() (answer, error) {
	hash, message := crypto.Hash(0), asked.Message
	if asked.Hash != 0 {
		hash = map[int]crypto.Hash{160: crypto.SHA1, 256: crypto.SHA256, 384: crypto.SHA384, 512: crypto.SHA512}[asked.Hash]
		hasher := hash.New()
		hasher.Write(message)
		message = hasher.Sum(nil)
	}
	var options crypto.SignerOpts = hash
	if asked.Pss {
		options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	signature, err := keys[asked.Key].Sign(rand.Reader, message, options)
	return answer{Signature: signature}, err
}

func (asked request) answer() (answer, error) {
	switch {
	case asked.Keys:
		return publicKeys()
	case asked.Sign != nil:
		return asked.Sign.answer()
	}
	given := sign(asked)
	if asked.Verified != "" {
		if err := verify(asked); err != nil {
			given = failed("verify", err)
		}
	}
	return given, nil
}

func rule(asked request, parsed *x509.CertificateRequest) error {
	usages := sets.NewString()
	for _, usage := range asked.Usages {
		usages.Insert(string(usage))
	}
	switch asked.Signer {
	case capi.KubeletServingSignerName:
		return certificates.ValidateKubeletServingCSR(parsed, usages)
	case capi.KubeAPIServerClientKubeletSignerName:
		return certificates.ValidateKubeletClientCSR(parsed, usages)
	case capi.KubeAPIServerClientSignerName:
		return validAPIServerClientUsages(asked.Usages)
	}
	return nil
}

func sign(asked request) answer {
	parsed, err := certificates.ParseCSR([]byte(asked.Request))
	if err != nil {
		return failed("parse", err)
	}
	if err := rule(asked, parsed); err != nil {
		return failed("rule", err)
	}
	certs, err := cert.ParseCertsPEM([]byte(asked.CaCert))
	if err != nil {
		return failed("ca", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM([]byte(asked.CaKey))
	if err != nil {
		return failed("ca", err)
	}
	ca := authority.CertificateAuthority{Certificate: certs[0], PrivateKey: key.(crypto.Signer)}
	der, err := ca.Sign(parsed.Raw, authority.PermissiveSigningPolicy{
		TTL:      time.Duration(asked.Life),
		Usages:   asked.Usages,
		Backdate: 5 * time.Minute,
		Short:    8 * time.Hour,
		Now:      func() time.Time { return time.Unix(0, asked.Now) },
	})
	if err != nil {
		return failed("sign", err)
	}
	return answer{Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// verify checks that the other program's certificate is signed by the CA.
func verify(asked request) error {
	certs, err := cert.ParseCertsPEM([]byte(asked.CaCert))
	if err != nil {
		return err
	}
	issued, err := cert.ParseCertsPEM([]byte(asked.Verified))
	if err != nil {
		return err
	}
	if len(issued) != 1 {
		return errors.New("not one certificate")
	}
	return certs[0].CheckSignature(issued[0].SignatureAlgorithm, issued[0].RawTBSCertificate, issued[0].Signature)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answers := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(answers)
	encoder.SetEscapeHTML(false)
	for lines.Scan() {
		var asked request
		err := json.Unmarshal(lines.Bytes(), &asked)
		given := answer{}
		if err == nil {
			given, err = asked.answer()
		}
		if err == nil {
			err = encoder.Encode(given)
		}
		if err == nil {
			err = answers.Flush()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
