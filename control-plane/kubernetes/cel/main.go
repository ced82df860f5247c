// Program cel checks policies for the original: one JSON question per line of standard input, one JSON answer per line of
// standard output. The first line has the documents and resources that all questions share.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/decls"
	admission "k8s.io/api/admissionregistration/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
	generated "k8s.io/kubernetes/pkg/generated/openapi"
)

const refPrefix = "#/components/schemas/"

const gvkExtension = "x-kubernetes-group-version-kind"

// document is the part of an OpenAPI v3 document that types come from.
type document struct {
	Components struct {
		Schemas map[string]*spec.Schema `json:"schemas"`
	} `json:"components"`
}

// setup is what all questions share.
type setup struct {
	// The documents of kinds that are not compiled in.
	Documents []document `json:"documents"`
	Resources []struct {
		Group    string `json:"group"`
		Version  string `json:"version"`
		Kind     string `json:"kind"`
		Plural   string `json:"plural"`
		Singular string `json:"singular"`
	} `json:"resources"`
}

// documents resolves kinds as the resolver for served documents does, without a server.
type documents []document

func (d documents) ResolveSchema(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	for _, one := range d {
		for ref, found := range one.Components.Schemas {
			var gvks []schema.GroupVersionKind
			if err := found.Extensions.GetObject(gvkExtension, &gvks); err != nil {
				return nil, err
			}
			for _, candidate := range gvks {
				if candidate == gvk {
					return resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
						s, ok := one.Components.Schemas[strings.TrimPrefix(ref, refPrefix)]
						return s, ok
					}, ref)
				}
			}
		}
	}
	return nil, resolver.ErrSchemaNotFound
}

// builtIn prints the compiled-in definitions as one OpenAPI v3 document.
func builtIn() error {
	namer := openapi.NewDefinitionNamer(kubernetes.Scheme, apiextensions.Scheme)
	definitions := generated.GetOpenAPIDefinitions(func(path string) spec.Ref {
		name, _ := namer.GetDefinitionName(path)
		return spec.MustCreateRef(refPrefix + name)
	})
	var out document
	out.Components.Schemas = map[string]*spec.Schema{}
	for path, definition := range definitions {
		name, extensions := namer.GetDefinitionName(path)
		one := definition.Schema
		bare(&one)
		for key, value := range extensions {
			one.AddExtension(key, value)
		}
		out.Components.Schemas[name] = &one
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// bare drops the texts of a schema, which are most of its size.
func bare(one *spec.Schema) {
	one.Description = ""
	for name, property := range one.Properties {
		bare(&property)
		one.Properties[name] = property
	}
	if one.Items != nil && one.Items.Schema != nil {
		bare(one.Items.Schema)
	}
	if one.AdditionalProperties != nil && one.AdditionalProperties.Schema != nil {
		bare(one.AdditionalProperties.Schema)
	}
}

// declarations prints every overload of the environment of stored expressions.
func declarations() error {
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
	if err != nil {
		return err
	}
	functions := env.Functions()
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, overload := range functions[name].OverloadDecls() {
			fmt.Println(signature(name, overload))
		}
	}
	return nil
}

func signature(name string, overload *decls.OverloadDecl) string {
	args := make([]string, 0, len(overload.ArgTypes()))
	for _, arg := range overload.ArgTypes() {
		args = append(args, checker.FormatCELType(arg))
	}
	receiver := ""
	if overload.IsMemberFunction() {
		receiver, args = args[0]+" ", args[1:]
	}
	return fmt.Sprintf("%s%s(%s) -> %s", receiver, name, strings.Join(args, ", "), checker.FormatCELType(overload.ResultType()))
}

func answer() error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines, encoder := json.NewDecoder(in), json.NewEncoder(out)
	var shared setup
	if err := lines.Decode(&shared); err != nil {
		return err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, one := range shared.Resources {
		gv := schema.GroupVersion{Group: one.Group, Version: one.Version}
		mapper.AddSpecific(gv.WithKind(one.Kind), gv.WithResource(one.Plural), gv.WithResource(one.Singular), meta.RESTScopeRoot)
	}
	check := &validating.TypeChecker{
		SchemaResolver: resolver.NewDefinitionsSchemaResolver(generated.GetOpenAPIDefinitions, kubernetes.Scheme, apiextensions.Scheme).
			Combine(documents(shared.Documents)),
		RestMapper: mapper,
	}
	for lines.More() {
		var policy admission.ValidatingAdmissionPolicy
		if err := lines.Decode(&policy); err != nil {
			return err
		}
		if err := encoder.Encode(check.Check(&policy)); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	run := answer
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "declarations":
			run = declarations
		case "definitions":
			run = builtIn
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
