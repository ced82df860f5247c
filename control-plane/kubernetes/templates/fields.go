package main

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// leaves are the structs that JSON does not show as objects with these fields.
var leaves = map[reflect.Type]string{
	reflect.TypeOf(resource.Quantity{}):  "quantity",
	reflect.TypeOf(metav1.Time{}):        "time",
	reflect.TypeOf(intstr.IntOrString{}): "int-or-string",
	reflect.TypeOf(metav1.FieldsV1{}):    "fields",
}

// printFields prints every struct of a pod template, in the order in which the fields lead to them, and every field
// in the order of its declaration: protobuf number, JSON name (- if inlined), when JSON omits it, Go name, Go type, shape.
func printFields(out io.Writer) error {
	root := reflect.TypeOf(corev1.PodTemplateSpec{})
	names := map[string]reflect.Type{root.String(): root}
	for queue := []reflect.Type{root}; len(queue) > 0; queue = queue[1:] {
		fmt.Fprintf(out, "%s\n", queue[0])
		for i := range queue[0].NumField() {
			line, part, err := describe(queue[0].Field(i))
			if err != nil {
				return fmt.Errorf("%s: %w", queue[0], err)
			}
			fmt.Fprintf(out, "  %s\n", line)
			if part == nil {
				continue
			}
			if known, ok := names[part.String()]; !ok {
				names[part.String()] = part
				queue = append(queue, part)
			} else if known != part {
				return fmt.Errorf("two structs are called %s", part)
			}
		}
	}
	return nil
}

// describe returns the line of a field and the struct that it leads to.
func describe(field reflect.StructField) (string, reflect.Type, error) {
	shape, part, err := shapeOf(field.Type)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", field.Name, err)
	}
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	omit := []string{}
	for _, option := range strings.Split(options, ",") {
		switch option {
		case "omitempty", "omitzero":
			omit = append(omit, option)
		}
	}
	if field.Anonymous && name == "" {
		name = "-"
	}
	if len(omit) == 0 {
		omit = []string{"always"}
	}
	if name == "" {
		return "", nil, fmt.Errorf("%s has no JSON name", field.Name)
	}
	number := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(number) < 2 {
		return "", nil, fmt.Errorf("%s has no protobuf number", field.Name)
	}
	goType := strings.ReplaceAll(field.Type.String(), " ", "")
	line := strings.Join([]string{number[1], name, strings.Join(omit, "+"), field.Name, goType, shape}, " ")
	return line, part, nil
}

// shapeOf describes how the values of a type are built, and returns the struct at the end.
func shapeOf(t reflect.Type) (string, reflect.Type, error) {
	if leaf, ok := leaves[t]; ok {
		return leaf, nil, nil
	}
	within := func(prefix string) (string, reflect.Type, error) {
		shape, part, err := shapeOf(t.Elem())
		return prefix + shape, part, err
	}
	switch t.Kind() {
	case reflect.String:
		return "string", nil, nil
	case reflect.Bool:
		return "bool", nil, nil
	case reflect.Int32, reflect.Int64:
		return "int", nil, nil
	case reflect.Struct:
		return t.String(), t, nil
	case reflect.Pointer:
		return within("*")
	case reflect.Slice:
		return within("[]")
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return within("map:")
		}
	}
	return "", nil, fmt.Errorf("no shape for %s", t)
}
