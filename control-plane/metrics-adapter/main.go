// Serves custom and external metrics with the provider of the published test adapter: values of custom metrics are
// written by POST, those of external metrics are constants.
//
// The published program always opens port 8080 on all addresses; this one listens where a flag says.
package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"

	basecmd "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
	fake "sigs.k8s.io/custom-metrics-apiserver/test-adapter/provider"
)

func main() {
	logs.InitLogs()
	defer logs.FlushLogs()

	adapter := basecmd.AdapterBase{Name: "metrics-adapter"}
	values := adapter.Flags().String("values-address", "127.0.0.1:0", "where values of metrics are written")
	if err := adapter.Flags().Parse(os.Args); err != nil {
		klog.Fatalf("unable to parse flags: %v", err)
	}
	client, err := adapter.DynamicClient()
	if err != nil {
		klog.Fatalf("unable to construct a client: %v", err)
	}
	mapper, err := adapter.RESTMapper()
	if err != nil {
		klog.Fatalf("unable to construct a REST mapper: %v", err)
	}
	provider, service := fake.NewFakeProvider(client, mapper)
	adapter.WithCustomMetrics(provider)
	adapter.WithExternalMetrics(provider)
	restful.DefaultContainer.Add(service)
	server := &http.Server{Addr: *values, Handler: restful.DefaultContainer, ReadHeaderTimeout: 3 * time.Second}
	go func() {
		klog.Fatal(server.ListenAndServe())
	}()
	if err := adapter.Run(context.Background()); err != nil {
		klog.Fatalf("unable to serve metrics: %v", err)
	}
}
