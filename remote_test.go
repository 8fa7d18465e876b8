// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
)

// With TENURE_TEST_STORE=HOST:PORT in the environment the worlds of these tests
// have their records on a store in another process, which that process serves
// there, in place of package memstore: dynamostore's TestAPI does so, with real
// engines. The root module cannot import such stores itself.
//
// A call takes no time of the bubble in which it is made. It is carried out by
// a goroutine outside of all bubbles, and to wait for it does not block durably,
// so that the bubble's clock stands still meanwhile.
var remote = dial(os.Getenv("TENURE_TEST_STORE"))

// localTests are the tests that do not run on a remote store, and why.
var localTests = map[string]string{
	"TestEventsTellTheStoryOfALease":                      needsWatch,
	"TestHintBeforeALookThatFails":                        needsWatch,
	"TestObserveYieldsEveryChangeAndNobody":               needsWatch,
	"TestPeerFailing_WaitLimitIsIgnoredWhileRacesAreLost": needsWatch,
	"TestReleaseBeforeTheWatchIsSeen":                     needsWatch,
	"TestReleaseWakesTheWaiter/watch":                     needsWatch,
	"TestReleaseWithLostReplyAndAWaiterIsDone":            needsWatch,
	"TestRevoke":                      needsWatch,
	"TestRunCoversWorkThatDrains":     needsWatch,
	"TestStepDownWithAWatch":          needsWatch,
	"TestWaiterInFrontMayGiveUp":      needsWatch,
	"TestWaitingIsToldOncePerHolder":  needsWatch,
	"TestWatchThatFailedIsTriedAgain": needsWatch,
	"TestWatchWithAnHourBetweenLooks": needsWatch,

	"TestABadBuildLosesToAGoodOne":               tooLong,
	"TestAcquireAllInAnyOrder":                   tooLong,
	"TestLargeSet":                               tooLong,
	"TestBusyShare":                              tooLong,
	"TestCoolDownAsksNobodyToMakeWay":            tooLong,
	"TestBusyShareIsOfLately":                    tooLong,
	"TestPriority":                               tooLong,
	"TestWaitIsBoundedWhileRacesAreLost":         wantsRecord,
	"TestPriorityPause":                          tooLong,
	"TestPriorityWithRareLooks":                  tooLong,
	"TestRareLooksWithinThePriorityPause":        tooLong,
	"TestPeerFailing_HeartbeatsComeInOneBurst":   tooLong,
	"TestPeerFailing_GoroutinesGrowWithTheLocks": tooLong,
	"TestSlowCallbackHoldsUpNothing":             tooLong,
	"TestSessionCostsOneWriteAHeartbeat":         tooLong,
	"TestSessionUnderManyRequests":               tooLong,
	"TestUnchangedOutlivesWhatIsRemembered":      tooLong,

	"TestSweepReleasedTakesWhatIsLongFree": tooLong,
	"TestTryAcquireManyDeadLocks":          tooLong,
	"TestWhatIsRememberedIsBounded":        tooLong,

	"TestUnlessAliveTakesADeadHoldersLockOverStaleReads": noStale,
	"TestUnlessAliveLeavesALivingHolderOverStaleReads":   noStale,
	"TestReleaseDeadOverStaleReads":                      noStale,
	"TestSweepOverStaleReads":                            noStale,
	"TestStaleReadsDelayNoTakeover":                      noStale,
	"TestStaleReadsOfOthersDelayNoTakeover":              noStale,
	"TestStaleReadsTakeNothingFromTheLiving":             noStale,

	"TestCheckAllocatesNothing":           noRecords,
	"TestErrorsMatchTheirSentinels":       noRecords,
	"TestHealthThatPanics":                noRecords,
	"TestHolderAt":                        noRecords,
	"TestNewNamesAllThatIsWrongInOneLine": noRecords,
	"TestNilOptionsAreTheDefaults":        noRecords,
	"TestOneNumberIsEnough":               noRecords,
	"TestRight":                           noRecords,
	"TestRightIsFinal":                    noRecords,
	"TestRightUnderAParent":               noRecords,
	"TestOptionsThatBreakARuleAreRefused": noRecords,
	"TestLocalTestsAreListed":             noRecords,

	"TestLostRacesAreNotRunHot":                        ownStore,
	"TestElapsedIsTheContendersClock":                  ownStore,
	"TestSuspendUnderAShortLease":                      ownStore,
	"TestLeaseBeginsBeforeItIsStepped":                 ownStore,
	"TestMistakesOfTheBellAreFound":                    ownStore,
	"TestAnHourOfManyTimings":                          ownStore,
	"TestManySessions":                                 ownStore,
	"TestEventualStatusesCost":                         tooLong,
	"TestEventualStatusesNeverGoBack":                  noStale,
	"TestSeldomEventualStatusesOfTheLiving":            noStale,
	"TestEventualLockStatuses":                         noStale,
	"TestEventualSessionStatuses":                      tooLong,
	"TestReleaseWakesObserversOfTheSameProcess":        ownStore,
	"TestMaxInFlightBoundsTheRequests":                 ownStore,
	"TestNoPlaceForARequest":                           ownStore,
	"TestReleaseWakesWaitersOfTheSameProcess":          ownStore,
	"TestSessionCheckIsExact":                          ownStore,
	"TestSessionGrantComesTooLate":                     ownStore,
	"TestSessionOpenedDuringAPause":                    ownStore,
	"TestTenThousandLocksOfOneClient":                  ownStore,
	"TestRemoteStore/Late":                             ranThere,
	"TestRemoteStore/Race":                             ranThere,
	"TestRemoteStore/Random":                           ranThere,
	"TestWatchesAreEnded":                              ownStore,
	"TestHistoryGoesOnBelowARaise":                     ownStore,
	"TestNoEndOfSessionsMakesTwoHolders":               ownStore,
	"TestNoRaiseAndAFence":                             ownStore,
	"TestRaiseClosesSessions":                          ownStore,
	"TestRaiseIsRefusedByAHeartbeatAfterTheLastLook":   ownStore,
	"TestRaiseIsRefusedByALateHeartbeat":               ownStore,
	"TestRaiseIsRefusedByAProgramThatComesDuringALook": ownStore,
	"TestRaiseIsRefusedWhileAProgramLives":             ownStore,
	"TestRaiseTokens":                                  ownStore,
	"TestRaiseTokensBelowAPrefix":                      ownStore,
	"TestRaiseTokensGivesUp":                           ownStore,
	"TestRaiseTokensIsRepeated":                        ownStore,
	"TestRaiseTokensLeavesAloneWhatIsUnreadable":       ownStore,
	"TestRaiseTokensOfAnotherClient":                   ownStore,
	"TestRaiseTokensOverAStoreThatFails":               ownStore,
	"TestRaiseTokensOverStaleLists":                    ownStore,
	"TestRaiseTokensRefuses":                           ownStore,
	"TestRaiseTokensThatAreKept":                       ownStore,
	"TestRaiseTokensUnderAClosedSession":               ownStore,
	"TestRaiseTokensWaitsForTheLongestLease":           ownStore,
	"TestRaiseWithoutTheWaitMakesTwoHolders":           ownStore,
	"TestBellRingsAtTheRelease":                        ownStore,
	"TestBellIsInHeldRecordsAlone":                     ownStore,
	"TestSecretOfABellIsShownToNobody":                 ownStore,
	"TestBellTellsOfARequest":                          ownStore,
	"TestBellRingsAtTheEndOfASession":                  ownStore,
	"TestBellRingsAtAReleaseOfUnknownOutcome":          ownStore,
	"TestBellRingsBeforeTheClientIsClosed":             ownStore,
	"TestBellOfAReleasedLock":                          ownStore,
	"TestBellRingsInTheOrderOfArrival":                 ownStore,
	"TestBellOfATransportThatFails":                    ownStore,
	"TestBellIsChecked":                                ownStore,
	"TestRemoteHoldersHaveNoBell":                      ownStore,
	"TestBellThatIsBlockedMakesNothingSlower":          ownStore,
	"TestBellThatIsBlockedLater":                       ownStore,
	"TestBellOverABadNetwork":                          ownStore,
	"TestFloodOfBellsCostsLittle":                      ownStore,
	"TestRingsDelayNoTakeover":                         ownStore,
	"TestTryLooksFirstWhereRefusalsAreCharged":         ownStore,
	"TestWaitConfirmsNothing":                          ownStore,
	"TestRingComesAfterTheRelease":                     ownStore,
	"TestBellMessagesAreShort":                         ownStore,
	"TestBellRingsNoThirdParty":                        ownStore,
	"TestWaitersThatAreToldReadLess":                   ownStore,
	"TestUnhurried":                                    ownStore,
	"TestUnhurriedBesideOthers":                        ownStore,
	"TestDeathOfATellingHolder":                        ownStore,
	"TestOnlyConfirmedHeartbeatsAreToldOf":             ownStore,
	"TestThoseWhoWantLifeAreNotPutOff":                 ownStore,
	"TestExpiredLeasesAreNotToldOf":                    ownStore,
	"TestReleaseOfATellingHolderThatIsNotHeard":        ownStore,
	"TestOlderProcessesWaitForALabel":                  ownStore,
	"TestOlderHolderReservesForNobody":                 ownStore,
}

// Why a test does not run on a remote store.
const (
	needsWatch = "it wants a watch to wake somebody at once, and the store has none"
	tooLong    = "it makes thousands of requests, for what is no matter of the store"
	noStale    = "it wants reads that are behind when they are told to be, and no engine has them"
	noRecords  = "it needs no records, or but one"
	ownStore   = "it brings a store of its own"
	// Where the record is read after the condition has failed, it may be free by
	// then: the claim was not applied, and is tried again a little later.
	wantsRecord = "its bound of 50 ms is one for stores whose conflicts come with the record they failed on"
	ranThere    = "it runs among the tests of the store itself"
	sessionless = "it wants sessions, and the store keeps none"
	restarts    = "it wants tokens that start again after a delete, and those of the store do not"
)

// restartingTests do not run on a remote store whose tokens outlive a delete.
var restartingTests = []string{"TestDeletedRecordIsNotAdopted", "TestHistoryAfterADeletion", "TestLateDeletesInTheHistory", "TestReleaseThatDeletes", "TestSweepReleasedLeavesWhatIsTakenMeanwhile"}

// sessionTests do not run on a remote store that keeps no sessions.
var sessionTests = []string{
	"TestAcquireAll",
	"TestAcquireAllOfNoSet",
	"TestAllOrNone",
	"TestAskedWhileItWaits",
	"TestAskedWhileItTriesASet",
	"TestRunAllThatDoesNotStop",
	"TestCutOffWhileItTakesASet",
	"TestCloseWhileItTakesASet",
	"TestOneOfASetEnds",
	"TestRunAllTellsTheEnd",
	"TestAskedWhileTheSessionCloses",
	"TestReleaseWithLostReplySaysWhatIsTrue/under_a_session_that_closes",
	"TestTransferToLabel/under_a_session",
	"TestStoreThatOnlyReads/open",
	"TestStoreThatOnlyReads/step_down_under_a_session",
	"TestStoreThatOnlyReads/sweep",
	"TestSweepInTheBackgroundRests",
	"TestObserverOfASweptSession",
	"TestReapClosesSessions",
	"TestReapOnce",
	"TestWhoWaitsActsOnWhatOthersSee/status/under_a_session",
	"TestWhoWaitsActsOnWhatOthersSee/statuses/under_a_session",
	"TestWhoWaitsActsOnWhatOthersSee/list/under_a_session",
	"TestWhoWaitsBesideOthersTakesOverInTime/tries/under_a_session",
	"TestWhoWaitsBesideOthersTakesOverInTime/statuses/under_a_session",
	"TestWhoWaitsBesideOthersTakesOverInTime/an_observer/under_a_session",
	"TestAbsentBeforeItWasOpened",
	"TestAbsentToAnObserverIsNotGone",
	"TestDriftsThatDiffer",
	"TestReadsOfManyTakeNothingFromTheLiving",
	"TestUnlessAliveOfWhatWasSeenLongAgo",
	"TestCampaignUnderAnExpiredSessionEnds",
	"TestCloseUnderAContextOfALease",
	"TestCloseUnderAContextThatIsDone",
	"TestCloseUnderADoneContextEnds",
	"TestCloseUnderADoneContextWithoutAnswer",
	"TestGrantUnderWayWhenReplaced/session",
	"TestHandOver/under_a_session",
	"TestHolderLivesThroughAnIncident",
	"TestHolderStepsDown/under_a_session",
	"TestHolderStepsDownWhenAsked/under_a_session",
	"TestHolderStepsDownWhenAsked/under_a_session_that_is_closed",
	"TestIncidentOutlastsPatience/session",
	"TestKeptRequestIsReadAfterHeartbeats",
	"TestObserverAwaitsTheLookAtASession",
	"TestOtherErrorsEndNothing",
	"TestPermanentFromTheStart/session",
	"TestRefusalOfTheStoreItselfStays",
	"TestReleaseWithWhileTheSessionCloses",
	"TestReplacedStoreEndsAllAtOnce",
	"TestShortIncidentEndsNoCall/session",
	"TestShortIncidentEndsNoCall/under_a_session",
	"TestTryBehindASession",
	"TestUnlessAliveSessionClosed",
	"TestWorkIsNil",
	"TestSessionAndOwnLeaseContend",
	"TestSessionChecksItsInput",
	"TestSessionCountsFromBeforeTheRequest",
	"TestSessionElection",
	"TestSessionEndsDuringAGrant",
	"TestSessionEndsWithItsClient",
	"TestSessionGhostIsReleased",
	"TestSessionIsClosedWhenItsWorkHasReturned",
	"TestSessionLosesAReply",
	"TestSessionObserved",
	"TestSessionReleasesInALoop",
	"TestSessionRequests",
	"TestSessionStalledLock",
	"TestSessionStatuses",
	"TestSessionStopTimeout",
	"TestSessionSweep",
	"TestTimingPerLock",
	"TestTimingUnderASession",
	"TestProgressUnderASession",
	"TestSessionThatCrashed",
}

func TestMain(m *testing.M) {
	flag.Parse()
	if remote != nil {
		leftOut := maps.Clone(localTests)
		if remote.tokensOutliveDelete {
			for _, name := range restartingTests {
				leftOut[name] = restarts
			}
		}
		if remote.noSessions {
			for _, name := range sessionTests {
				leftOut[name] = sessionless
			}
		}
		names := slices.Sorted(maps.Keys(leftOut))
		for _, name := range names {
			fmt.Fprintf(os.Stdout, "left out: %s: %s\n", name, leftOut[name])
		}
		if err := flag.Set("test.skip", skipped(names)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// TestLocalTestsAreListed finds a test that cannot have its records elsewhere, since it never
// comes to newPagedWorld, and is not in localTests. Otherwise the stores' TestAPI would, late.
func TestLocalTestsAreListed(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string][]string{} // by a function, or a method of any type
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				ast.Inspect(f, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						uses[f.Name.Name] = append(uses[f.Name.Name], id.Name)
					}
					return true
				})
			}
		}
	}
	comes := func(from string) bool {
		seen, next := map[string]bool{from: true}, []string{from}
		for len(next) > 0 && !seen["newPagedWorld"] {
			for _, name := range uses[next[0]] {
				if !seen[name] {
					seen[name] = true
					next = append(next, name)
				}
			}
			next = next[1:]
		}
		return seen["newPagedWorld"]
	}
	others := []string{"TestMain", "TestRemoteStore"}
	for name := range uses {
		if strings.HasPrefix(name, "Test") && !slices.Contains(others, name) && localTests[name] == "" && !comes(name) {
			t.Errorf("%s makes its world without newWorld: let it use that, or say in localTests why it cannot", name)
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(localTests)), restartingTests, sessionTests) {
		if test, _, _ := strings.Cut(name, "/"); uses[test] == nil {
			t.Errorf("%s is listed, and there is no such test", name)
		}
	}
}

// skipped returns the pattern of the flag -skip for names of tests.
func skipped(names []string) string {
	var patterns []string
	for _, name := range names {
		var parts []string
		for part := range strings.SplitSeq(name, "/") {
			parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
		}
		patterns = append(patterns, strings.Join(parts, "/"))
	}
	return strings.Join(patterns, "|")
}

// TestRemoteStore checks what is between the other tests and a remote store: that
// its errors and records mean here what they mean there.
func TestRemoteStore(t *testing.T) {
	if remote == nil {
		t.Skip("TENURE_TEST_STORE names no store: the tests of dynamostore do, which make verify runs")
	}
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		w := remote.world(t, 7)
		return drivertest.Harness{
			Open:                func(*testing.T) driver.Store { return w.open() },
			EventualReads:       true,
			TokensOutliveDelete: remote.tokensOutliveDelete,
			NoSessions:          remote.noSessions,
			Ops:                 100,
		}
	})
}

// remoteCall is what goes to the other process, and remoteReply what comes back.
type remoteCall struct {
	Op          string
	Store       int // the handle, from the reply to "world" or "open"
	Key, Cursor string
	Consistency driver.Consistency
	PageSize    int
	Prev, Next  driver.Record
}

type remoteReply struct {
	Store      int
	Now, Prev  driver.Record
	Page       driver.Page // but for Unreadable
	Unreadable map[string]*remoteError
	Err        *remoteError

	TokensOutliveDelete, NoSessions bool // the reply to "hello"
}

// remoteError is an error with its meaning.
type remoteError struct {
	Text     string
	Is       []string // texts of what it matches
	Conflict *driver.ConflictError
}

// remoteMeanings are what the error of a store may match.
var remoteMeanings = []error{
	driver.ErrNotFound, driver.ErrNotApplied, driver.ErrPermanent, driver.ErrUnreadable, driver.ErrClosed,
}

func (e *remoteError) Error() string { return e.Text }

func (e *remoteError) Unwrap() []error {
	var all []error
	for _, err := range remoteMeanings {
		if slices.Contains(e.Is, err.Error()) {
			all = append(all, err)
		}
	}
	if e.Conflict != nil {
		all = append(all, e.Conflict)
	}
	return all
}

// err returns e, or nil without one.
func (e *remoteError) err() error {
	if e == nil {
		return nil
	}
	return e
}

// remoteServer is the other process. Its goroutines and channels belong to no
// bubble.
type remoteServer struct {
	free                            chan *remoteLine
	tokensOutliveDelete, noSessions bool
}

// remoteLine is a connection, for one call at a time.
type remoteLine struct {
	calls   chan remoteCall
	replies chan remoteReply
}

// dial returns nil for an empty address. It does not return without a server:
// tests that find none must not fall back on another store.
func dial(address string) *remoteServer {
	if address == "" {
		return nil
	}
	const lines = 32 // calls at once
	s := &remoteServer{free: make(chan *remoteLine, lines)}
	for range lines {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			fmt.Fprintln(os.Stderr, "TENURE_TEST_STORE:", err)
			os.Exit(2)
		}
		l := &remoteLine{make(chan remoteCall), make(chan remoteReply)}
		go l.run(conn)
		s.free <- l
	}
	hello := s.call(remoteCall{Op: "hello"})
	s.tokensOutliveDelete, s.noSessions = hello.TokensOutliveDelete, hello.NoSessions
	return s
}

func (l *remoteLine) run(conn net.Conn) {
	out, in := json.NewEncoder(conn), json.NewDecoder(conn)
	for call := range l.calls {
		var reply remoteReply
		if err := errors.Join(out.Encode(call), in.Decode(&reply)); err != nil {
			panic(fmt.Sprintf("the remote store is gone: %v", err)) // an error could pass for one that a test wants
		}
		l.replies <- reply
	}
}

func (s *remoteServer) call(call remoteCall) remoteReply {
	line := <-s.free
	line.calls <- call
	reply := <-line.replies
	s.free <- line
	return reply
}

// world returns a world whose records live as long as the test.
func (s *remoteServer) world(t *testing.T, pageSize int) *world {
	t.Helper()
	reply := s.call(remoteCall{Op: "world", PageSize: pageSize})
	if reply.Err != nil {
		t.Fatal(reply.Err)
	}
	t.Attr("store", "remote")
	records := &remoteStore{server: s, id: reply.Store}
	t.Cleanup(func() {
		if err := s.call(remoteCall{Op: "end", Store: records.id}).Err; err != nil {
			t.Error(err)
		}
	})
	return &world{t: t, records: records, open: func() driver.Store {
		reply := s.call(remoteCall{Op: "open", Store: records.id})
		if reply.Err != nil {
			t.Fatal(reply.Err)
		}
		return &remoteStore{server: s, id: reply.Store}
	}}
}

// remoteStore is a handle onto records in the other process. No context leaves
// the bubble: it is looked at before the call, and not again, as by memstore.
type remoteStore struct {
	server *remoteServer
	id     int
}

func (s *remoteStore) KeepsTokens() bool { return s.server.tokensOutliveDelete }

func (s *remoteStore) call(ctx context.Context, call remoteCall) (remoteReply, error) {
	if err := ctx.Err(); err != nil {
		return remoteReply{}, driver.NotApplied(err)
	}
	call.Store = s.id
	reply := s.server.call(call)
	return reply, reply.Err.err()
}

func (s *remoteStore) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	reply, err := s.call(ctx, remoteCall{Op: "get", Key: key, Consistency: c})
	return reply.Now, err
}

func (s *remoteStore) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err // JSON would change what is not UTF-8
	}
	reply, err := s.call(ctx, remoteCall{Op: "claim", Next: next})
	return reply.Now, reply.Prev, err
}

func (s *remoteStore) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	if err := driver.CheckSwap(prev, next); err != nil {
		return driver.Record{}, err
	}
	reply, err := s.call(ctx, remoteCall{Op: "swap", Prev: prev, Next: next})
	return reply.Now, err
}

func (s *remoteStore) Delete(ctx context.Context, prev driver.Record) error {
	_, err := s.call(ctx, remoteCall{Op: "delete", Prev: prev})
	return err
}

func (s *remoteStore) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	reply, err := s.call(ctx, remoteCall{Op: "list", Key: prefix, Cursor: cursor})
	for key, err := range reply.Unreadable {
		if reply.Page.Unreadable == nil {
			reply.Page.Unreadable = map[string]error{}
		}
		reply.Page.Unreadable[key] = err
	}
	return reply.Page, err
}

func (s *remoteStore) Close() error {
	return s.server.call(remoteCall{Op: "close", Store: s.id}).Err.err()
}
