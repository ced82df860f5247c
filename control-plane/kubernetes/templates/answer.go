package main

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/controller"
	deploymentutil "k8s.io/kubernetes/pkg/controller/deployment/util"
	"k8s.io/utils/dump"
)

// Question is about one template or two.
type Question struct {
	// Template is a pod template.
	Template json.RawMessage `json:"template"`
	// Other is a template to compare it with.
	Other json.RawMessage `json:"other,omitempty"`
	// CollisionCount goes into the hash.
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Dump asks for the text that is hashed.
	Dump bool `json:"dump,omitempty"`
}

// Answer is what the original does.
type Answer struct {
	Error string `json:"error,omitempty"`
	// Served is the template as an API server sends it as JSON.
	Served json.RawMessage `json:"served,omitempty"`
	// OtherServed is the other template as an API server sends it.
	OtherServed json.RawMessage `json:"otherServed,omitempty"`
	// Hash is the pod-template-hash.
	Hash string `json:"hash"`
	// DaemonSetData and StatefulSetData are the data of the template's revision.
	DaemonSetData   string `json:"daemonSetData"`
	StatefulSetData string `json:"statefulSetData"`
	// Equal says whether a Deployment takes the other template for the same.
	Equal bool   `json:"equal"`
	Dump  string `json:"dump,omitempty"`
}

func (q *Question) answer() Answer {
	answer, err := q.tryAnswer()
	if err != nil {
		return Answer{Error: err.Error()}
	}
	return *answer
}

func (q *Question) tryAnswer() (*Answer, error) {
	template, served, err := decode(q.Template)
	if err != nil {
		return nil, err
	}
	answer := &Answer{Served: served, Hash: controller.ComputeHash(template, q.CollisionCount)}
	if q.Dump {
		answer.Dump = dump.ForHash(*template)
	}
	if answer.DaemonSetData, err = daemonSetData(template); err != nil {
		return nil, err
	}
	if answer.StatefulSetData, err = statefulSetData(template); err != nil {
		return nil, err
	}
	if len(q.Other) > 0 {
		other, otherServed, err := decode(q.Other)
		if err != nil {
			return nil, err
		}
		answer.OtherServed = otherServed
		answer.Equal = deploymentutil.EqualIgnoreHash(template, other)
	}
	return answer, nil
}

// decode reads a template as an API server does, and returns it as the original decodes it from protobuf, and as the
// server sends it as JSON.
func decode(text []byte) (*corev1.PodTemplateSpec, json.RawMessage, error) {
	var written corev1.PodTemplateSpec
	if err := utiljson.Unmarshal(text, &written); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", text, err)
	}
	bytes, err := written.Marshal()
	if err != nil {
		return nil, nil, err
	}
	var stored corev1.PodTemplateSpec
	if err := stored.Unmarshal(bytes); err != nil {
		return nil, nil, err
	}
	served, err := json.Marshal(stored)
	return &stored, served, err
}

// daemonSetData is the patch that a DaemonSet's revision contains.
//
// Parity: getPatch of pkg/controller/daemon/update.go, which is not exported.
func daemonSetData(template *corev1.PodTemplateSpec) (string, error) {
	encoded, err := json.Marshal(&appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: *template}})
	if err != nil {
		return "", err
	}
	return patch(encoded, utiljson.Unmarshal)
}

// statefulSetData is the patch that a StatefulSet's revision contains.
//
// Parity: getPatch of pkg/controller/statefulset/stateful_set_utils.go, which is not exported.
func statefulSetData(template *corev1.PodTemplateSpec) (string, error) {
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: *template}}
	encoded, err := runtime.Encode(scheme.Codecs.LegacyCodec(appsv1.SchemeGroupVersion), set)
	if err != nil {
		return "", err
	}
	return patch(encoded, json.Unmarshal)
}

func patch(encoded []byte, unmarshal func([]byte, any) error) (string, error) {
	var raw map[string]any
	if err := unmarshal(encoded, &raw); err != nil {
		return "", err
	}
	template := raw["spec"].(map[string]any)["template"].(map[string]any)
	template["$patch"] = "replace"
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
	return string(data), err
}
