// Program certificates signs for the original: one JSON request per line of standard input, one JSON answer per line of
// standard output.
package main

import (
	"bufio"
	"crypto"
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
}

type answer struct {
	// The step that failed: parse, rule, sign or verify.
	Step        string `json:"step,omitempty"`
	Error       string `json:"error,omitempty"`
	Certificate string `json:"certificate,omitempty"`
}

func failed(step string, err error) answer { return answer{Step: step, Error: err.Error()} }

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
			given = sign(asked)
			if asked.Verified != "" {
				if err := verify(asked); err != nil {
					given = failed("verify", err)
				}
			}
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
