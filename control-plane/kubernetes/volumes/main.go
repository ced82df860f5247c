// Program volumes answers for the original which volume an unbound claim gets. It reads one question per line and
// writes one answer per line, both as JSON. The original's index of volumes is the file beside this one, copied from its
// package. It tries groups of as many access modes in no particular order, so an answer lists every volume that it may
// choose, and the program fails if the index chooses another one.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/volume/util"
)

// tries is how often the index is asked: its order is random.
const tries = 4

type question struct {
	Claim   v1.PersistentVolumeClaim `json:"claim"`
	Volumes []*v1.PersistentVolume   `json:"volumes"`
	Delayed bool                     `json:"delayed"`
}

type answer struct {
	Error  bool     `json:"error"`
	Chosen []string `json:"chosen"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fail(err)
		}
		candidates := choose(&asked)
		for range tries {
			if err := check(&asked, candidates); err != nil {
				fail(err)
			}
		}
		line, _ := json.Marshal(candidates)
		fmt.Fprintf(out, "%s\n", line)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// check asks the original's index once.
func check(asked *question, candidates answer) error {
	index := newPersistentVolumeOrderedIndex()
	for _, pv := range asked.Volumes {
		if err := index.store.Add(pv); err != nil {
			return err
		}
	}
	found, err := index.findBestMatchForClaim(&asked.Claim, asked.Delayed)
	switch {
	case (err != nil) != candidates.Error:
		return fmt.Errorf("index: error %v, candidates %v", err, candidates)
	case err != nil:
		return nil
	case found == nil && len(candidates.Chosen) > 0:
		return fmt.Errorf("index: none, candidates %v", candidates)
	case found != nil && !slices.Contains(candidates.Chosen, found.Name):
		return fmt.Errorf("index: %v, candidates %v", found.Name, candidates)
	}
	return nil
}

// choose returns every volume that the index may choose.
func choose(asked *question) answer {
	groups := map[string][]*v1.PersistentVolume{}
	for _, pv := range asked.Volumes {
		key := v1helper.GetAccessModesAsString(pv.Spec.AccessModes)
		groups[key] = append(groups[key], pv)
	}
	result := answer{Chosen: []string{}}
	for count := 0; count <= 4 && len(result.Chosen) == 0; count++ {
		for key, pvs := range groups {
			modes := v1helper.GetAccessModesFromString(key)
			if len(modes) != count || !util.ContainsAllAccessModes(modes, asked.Claim.Spec.AccessModes) {
				continue
			}
			found, err := volume.FindMatchingVolume(&asked.Claim, pvs, nil, nil, asked.Delayed, true)
			if err != nil {
				return answer{Error: true, Chosen: []string{}}
			}
			if found != nil {
				result.Chosen = append(result.Chosen, found.Name)
			}
		}
	}
	return result
}
