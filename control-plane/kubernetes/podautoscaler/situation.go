// Package podautoscaler is the original's package, to which this file adds a way to reconcile an autoscaler in a given
// situation: with canned responses of the API server and a clock that is set. The original's files are copied here when
// the program is built, and read the clock below.
package podautoscaler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	scaleclient "k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"
)

var judgeClock time.Time

func judgeNow() time.Time { return judgeClock }

// Situation is an autoscaler and what happens to it.
type Situation struct {
	Options struct {
		Tolerance               float64 `json:"tolerance"`
		DownscaleStabilization  int64   `json:"downscaleStabilization"`
		CPUInitializationPeriod int64   `json:"cpuInitializationPeriod"`
		InitialReadinessDelay   int64   `json:"initialReadinessDelay"`
		ScaleToZero             bool    `json:"scaleToZero"`
		Generation              bool    `json:"generation"`
		PodLevelResources       bool    `json:"podLevelResources"`
	} `json:"options"`
	CustomVersion string `json:"customVersion"`
	Steps         []Step `json:"steps"`
}

// Step is one reconcile.
type Step struct {
	// Wall is the time in milliseconds since 1970.
	Wall int64 `json:"wall"`
	// Autoscaler is the cached object; its status is that of the last step if it has none.
	Autoscaler json.RawMessage `json:"autoscaler"`
	// Others are selectors of other autoscalers, by name.
	Others map[string]string `json:"others"`
	Pods   []v1.Pod          `json:"pods"`
	// Responses are those to GETs, by path.
	Responses map[string]Response `json:"responses"`
	// ScaleWrites are the codes of the first writes of the Scale.
	ScaleWrites []int `json:"scaleWrites"`
}

// Response is a response of the API server.
type Response struct {
	Code int             `json:"code"`
	Body json.RawMessage `json:"body"`
}

// Answer is what the original does in each step.
type Answer struct {
	Error string   `json:"error,omitempty"`
	Steps []Result `json:"steps"`
}

// Result is what the original does in one step.
type Result struct {
	Requests []string        `json:"requests"`
	Events   []string        `json:"events"`
	Sizes    []int32         `json:"sizes"`
	Status   json.RawMessage `json:"status,omitempty"`
	Error    string          `json:"error,omitempty"`
	IsSpec   bool            `json:"isSpec"`
}

type situationRecorder struct{ result *Result }

func (r *situationRecorder) Event(_ runtime.Object, eventType, reason, message string) {
	r.result.Events = append(r.result.Events, eventType+" "+reason+": "+message)
}

func (r *situationRecorder) Eventf(object runtime.Object, eventType, reason, message string, args ...interface{}) {
	r.Event(object, eventType, reason, fmt.Sprintf(message, args...))
}

func (r *situationRecorder) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, message string, args ...interface{}) {
	r.Eventf(object, eventType, reason, message, args...)
}

// situationServer answers requests from the step.
type situationServer struct {
	step   *Step
	result *Result
}

func (s *situationServer) RoundTrip(request *http.Request) (*http.Response, error) {
	path := request.URL.Path
	if request.Method == http.MethodPut {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		return s.put(request, path, body)
	}
	line := path
	if query, _ := queryOf(request); query != "" {
		line += "?" + query
	}
	s.result.Requests = append(s.result.Requests, line)
	response, known := s.step.Responses[path]
	if !known {
		response = Response{Code: 404, Body: status(404, "NotFound", "the server could not find the requested resource")}
	}
	return reply(request, response.Code, response.Body), nil
}

func queryOf(request *http.Request) (string, error) {
	values := request.URL.Query()
	var parts []string
	for _, name := range []string{"labelSelector", "metricLabelSelector"} {
		if value := values.Get(name); value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	return strings.Join(parts, "&"), nil
}

func (s *situationServer) put(request *http.Request, path string, body []byte) (*http.Response, error) {
	if strings.HasSuffix(path, "/scale") {
		var scale struct {
			Spec struct {
				Replicas int32 `json:"replicas"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(body, &scale); err != nil {
			return nil, err
		}
		s.result.Sizes = append(s.result.Sizes, scale.Spec.Replicas)
		if at := len(s.result.Sizes) - 1; at < len(s.step.ScaleWrites) && s.step.ScaleWrites[at] != 200 {
			code := s.step.ScaleWrites[at]
			reasons := map[int]string{409: "Conflict", 403: "Forbidden", 500: "InternalError"}
			return reply(request, code, status(code, reasons[code], "refused")), nil
		}
		return reply(request, 200, body), nil
	}
	var hpa struct {
		Status json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(body, &hpa); err != nil {
		return nil, err
	}
	s.result.Status = hpa.Status
	return reply(request, 200, body), nil
}

func status(code int, reason, message string) []byte {
	text, _ := json.Marshal(map[string]interface{}{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code,
	})
	return text
}

func reply(request *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Request: request, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}
}

type fixedScaleKind struct{}

func (fixedScaleKind) ScaleForResource(schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, nil
}

type fixedVersion string

func (f fixedVersion) PreferredVersion() (schema.GroupVersion, error) {
	if f == "" {
		return schema.GroupVersion{}, fmt.Errorf("no custom metrics API (custom.metrics.k8s.io) registered")
	}
	return schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: string(f)}, nil
}

func (f fixedVersion) Invalidate() {}

func groupResources(group, version string, resources ...metav1.APIResource) *restmapper.APIGroupResources {
	served := metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: group, Version: version}.String(), Version: version}
	return &restmapper.APIGroupResources{
		Group:              metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served},
		VersionedResources: map[string][]metav1.APIResource{version: resources},
	}
}

func apiResource(name, kind string, namespaced bool) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced}
}

func (s *Situation) controller(server *situationServer, pods cache.Indexer) (*HorizontalController, error) {
	config := &rest.Config{Host: "http://judge", Transport: server, QPS: -1}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	mapper := restmapper.NewDiscoveryRESTMapper([]*restmapper.APIGroupResources{
		groupResources("", "v1", apiResource("pods", "Pod", true), apiResource("services", "Service", true), apiResource("namespaces", "Namespace", false)),
		groupResources("apps", "v1", apiResource("deployments", "Deployment", true)),
		groupResources("example.com", "v1", apiResource("widgets", "Widget", true)),
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	scales, err := scaleclient.NewForConfig(rest.CopyConfig(config), mapper, dynamic.LegacyAPIPathResolverFunc, fixedScaleKind{})
	if err != nil {
		return nil, err
	}
	resources, err := resourceclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	external, err := external_metrics.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	custom := custom_metrics.NewForConfig(config, mapper, fixedVersion(s.CustomVersion))
	lister := corelisters.NewPodLister(pods)
	seconds := func(count int64) time.Duration { return time.Duration(count) * time.Second }
	options := &s.Options
	return &HorizontalController{
		eventRecorder:                &situationRecorder{},
		scaleNamespacer:              scales,
		hpaNamespacer:                client.AutoscalingV2(),
		mapper:                       mapper,
		tolerance:                    options.Tolerance,
		downscaleStabilisationWindow: seconds(options.DownscaleStabilization),
		monitor:                      monitor.New(),
		podLister:                    lister,
		recommendations:              map[string][]timestampedRecommendation{},
		scaleUpEvents:                map[string][]timestampedScaleEvent{},
		scaleDownEvents:              map[string][]timestampedScaleEvent{},
		selectorTracker:              newHPASelectorStore(),
		consistencyStore:             consistencyutil.NewNoopConsistencyStore(),
		replicaCalc: NewReplicaCalculator(
			metricsclient.NewRESTMetricsClient(resources, custom, external), lister,
			seconds(options.CPUInitializationPeriod), seconds(options.InitialReadinessDelay),
		),
	}, nil
}

// Answer reconciles the autoscaler in every step.
func (s *Situation) Answer() Answer {
	options := &s.Options
	gates := fmt.Sprintf("HPAScaleToZero=%v,HPAGeneration=%v,PodLevelResources=%v", options.ScaleToZero, options.Generation, options.PodLevelResources)
	if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
		return Answer{Error: err.Error()}
	}
	server := &situationServer{}
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	controller, err := s.controller(server, pods)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	var answer Answer
	var last json.RawMessage
	for at := range s.Steps {
		result, err := s.Steps[at].reconcile(controller, server, pods, last)
		if err != nil {
			return Answer{Error: fmt.Sprintf("step %d: %v", at, err)}
		}
		if len(result.Status) > 0 {
			last = result.Status
		}
		answer.Steps = append(answer.Steps, *result)
	}
	return answer
}

func (s *Step) reconcile(controller *HorizontalController, server *situationServer, pods cache.Indexer, last json.RawMessage) (*Result, error) {
	result := &Result{}
	server.step, server.result = s, result
	controller.eventRecorder = &situationRecorder{result}
	judgeClock = time.UnixMilli(s.Wall).UTC()
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := json.Unmarshal(s.Autoscaler, hpa); err != nil {
		return nil, err
	}
	if len(last) > 0 {
		hpa.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
		if err := json.Unmarshal(last, &hpa.Status); err != nil {
			return nil, err
		}
	}
	var listed []interface{}
	for at := range s.Pods {
		listed = append(listed, &s.Pods[at])
	}
	if err := pods.Replace(listed, ""); err != nil {
		return nil, err
	}
	own := selectors.Key{Namespace: hpa.Namespace, Name: hpa.Name}
	controller.selectorTracker.PutIfAbsent(hpa.Namespace, own, labels.Nothing())
	for name, text := range s.Others {
		selector, err := labels.Parse(text)
		if err != nil {
			return nil, err
		}
		key := selectors.Key{Namespace: hpa.Namespace, Name: name}
		controller.selectorTracker.PutIfAbsent(hpa.Namespace, key, selector)
	}
	err := controller.reconcileAutoscaler(context.Background(), hpa, own.String())
	if err != nil {
		result.Error = err.Error()
	}
	return result, nil
}
