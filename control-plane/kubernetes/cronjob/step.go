// Package cronjob is the original's package, to which this file adds a way to sync one CronJob with given Jobs at a
// given time. The original's files are copied here when the program is built.
package cronjob

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
)

// Step is one sync.
type Step struct {
	// Now is the time in nanoseconds since 1970.
	Now     int64           `json:"now"`
	CronJob batchv1.CronJob `json:"cronJob"`
	Jobs    []batchv1.Job   `json:"jobs"`
}

// Result is what the original does in one sync.
type Result struct {
	Created []json.RawMessage `json:"created"`
	Deleted []string          `json:"deleted"`
	Events  []string          `json:"events"`
	Status  json.RawMessage   `json:"status,omitempty"`
	// RequeueAfter is in nanoseconds.
	RequeueAfter *int64 `json:"requeueAfter,omitempty"`
	Failed       bool   `json:"failed"`
}

type stepRecorder struct{ result *Result }

func (r *stepRecorder) Event(_ runtime.Object, eventType, reason, message string) {
	r.result.Events = append(r.result.Events, eventType+" "+reason+": "+message)
}

func (r *stepRecorder) Eventf(object runtime.Object, eventType, reason, message string, args ...interface{}) {
	r.Event(object, eventType, reason, fmt.Sprintf(message, args...))
}

func (r *stepRecorder) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, message string, args ...interface{}) {
	r.Eventf(object, eventType, reason, message, args...)
}

// stepJobs are the stored Jobs.
type stepJobs struct {
	now    time.Time
	jobs   map[string]*batchv1.Job
	result *Result
}

func (s *stepJobs) GetJob(_, name string) (*batchv1.Job, error) {
	if job, exists := s.jobs[name]; exists {
		return job, nil
	}
	return nil, errors.NewNotFound(batchv1.Resource("jobs"), name)
}

func (s *stepJobs) CreateJob(namespace string, job *batchv1.Job) (*batchv1.Job, error) {
	if _, exists := s.jobs[job.Name]; exists {
		return nil, errors.NewAlreadyExists(batchv1.Resource("jobs"), job.Name)
	}
	stored := job.DeepCopy()
	stored.Namespace = namespace
	body, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	s.result.Created = append(s.result.Created, body)
	stored.CreationTimestamp = metav1.NewTime(s.now)
	s.jobs[job.Name] = stored
	return stored, nil
}

func (s *stepJobs) DeleteJob(_, name string) error {
	if _, exists := s.jobs[name]; !exists {
		return errors.NewNotFound(batchv1.Resource("jobs"), name)
	}
	delete(s.jobs, name)
	s.result.Deleted = append(s.result.Deleted, name)
	return nil
}

// stepCronJob is the stored CronJob.
type stepCronJob struct {
	stored *batchv1.CronJob
	result *Result
}

func (s *stepCronJob) GetCronJob(context.Context, string, string) (*batchv1.CronJob, error) {
	return s.stored.DeepCopy(), nil
}

func (s *stepCronJob) UpdateStatus(_ context.Context, cronJob *batchv1.CronJob) (*batchv1.CronJob, error) {
	status, err := json.Marshal(cronJob.Status)
	if err != nil {
		return nil, err
	}
	s.result.Status = status
	return cronJob, nil
}

// Sync lets the original sync the CronJob.
func (s *Step) Sync() (*Result, error) {
	result := &Result{Created: []json.RawMessage{}, Deleted: []string{}, Events: []string{}}
	now := time.Unix(0, s.Now).UTC()
	cronJobs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := cronJobs.Add(&s.CronJob); err != nil {
		return nil, err
	}
	byController := func(object interface{}) ([]string, error) {
		if owner := metav1.GetControllerOf(object.(*batchv1.Job)); owner != nil {
			return []string{string(owner.UID)}, nil
		}
		return nil, nil
	}
	jobs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{jobControllerUIDIndex: byController})
	stored := map[string]*batchv1.Job{}
	for at := range s.Jobs {
		stored[s.Jobs[at].Name] = &s.Jobs[at]
		if err := jobs.Add(&s.Jobs[at]); err != nil {
			return nil, err
		}
	}
	controller := &ControllerV2{
		recorder:       &stepRecorder{result},
		jobControl:     &stepJobs{now, stored, result},
		cronJobControl: &stepCronJob{&s.CronJob, result},
		cronJobLister:  batchv1listers.NewCronJobLister(cronJobs),
		jobIndexer:     jobs,
		now:            func() time.Time { return now },
	}
	requeueAfter, err := controller.sync(context.Background(), s.CronJob.Namespace+"/"+s.CronJob.Name)
	if requeueAfter != nil {
		nanoseconds := requeueAfter.Nanoseconds()
		result.RequeueAfter = &nanoseconds
	}
	result.Failed = err != nil
	// The order of Jobs in the indexer is random.
	sort.Strings(result.Events)
	sort.Strings(result.Deleted)
	return result, nil
}
