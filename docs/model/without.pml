/* Where a rule can be switched off: what the steps of failover.pml do with it, and without. */

/* P16: what R's fence waits for, polls, leaves in the completion queue, and drops of what comes too late. */
#ifdef GPU
#define NIC_QUIET(l) (!nic[l] && !RECORDS_IN_NIC(l))
#else
#define NIC_QUIET(l) (!nic[l] && !RECORDS_IN_NIC(l) && !IN_PCIE(l))
#endif
#if defined(NO_RECV_FENCE) || defined(NO_MARKERS)
#define QUIET(l) 1
#else
#define QUIET(l) NIC_QUIET(l)
#endif
/* P16.4: R closed the incarnation at its library's flush: what ends the hold. */
#ifdef NO_HOLD_TOLD
#define QUIET_AFTER_ALL(l) 1
#else
#define QUIET_AFTER_ALL(l) NIC_QUIET(l)
#endif
#ifdef NO_CLOSE_INC
#define POLL_LAST(l) skip
#define CLOSED(l) 0
#else
#define POLL_LAST(l) r_poll(l)
#define CLOSED(l) (rSt[l] == FENCED)
#endif
#if defined(NO_RECV_FENCE) || defined(NO_NEW_QP)
#define DROP(l) skip
#define OPEN_AFTER_FENCE 1
#else
#define DROP(l) fab[l] = 0; LOSE_PAIRS(l)
#define OPEN_AFTER_FENCE 0
#endif
/* P23: an old packet does not fit the new queue pair. */
#ifdef NO_NEW_QP
#define ENTERS(l) (rSt[l] != FENCED || (HAS_NEXT(l) && rSt[NEXT(l)] == UP))
#else
#define ENTERS(l) 1
#endif

/* P2: what S takes for a receive that is used at R. */
#if defined(NO_RQ_BOUND)
#define TAKES_ROOM(q, l) 0
#elif defined(NO_RQ_ACK) /* ... until its own completion says that the part has arrived */
#define TAKES_ROOM(q, l) (wr[l] & BIT(q))
#else
#define TAKES_ROOM(q, l) (own[q] == ON(l))
#endif

/* P21: which parts are posted again. */
#if defined(NO_RETRANSMIT_INC)
#define UNPOST(q, l) (own[q] >= ON(0))
#elif defined(NO_RETRANSMIT_INC_IF_FENCED)
#define UNPOST(q, l) (own[q] >= ON(0) && sSt[own[q] - ON(0)] == FENCED)
#else
#define UNPOST(q, l) (own[q] == ON(l))
#endif

/* P5: R takes whatever arrives on an incarnation that it has not fenced. Without: only what was posted after its last change of paths. */
#ifdef NO_P5
#define VALID (~stale)
#define NEW_EPOCH stale = 0; idx = 0; do :: idx < NL -> stale = stale | fab[idx] | nic[idx] | mem[idx]; idx++ :: else -> break od; idx = 0
#else
#define VALID (~0)
#define NEW_EPOCH skip
#endif

/* P16 at S: without a fence DOWN is the last of its states. What R writes there goes on arriving. */
#ifdef NO_SEND_FENCE
#define S_CAN_FENCE 0
#define S_FENCED(l) OVER(sSt[l])
#else
#define S_CAN_FENCE 1
#define S_FENCED(l) (sSt[l] == FENCED)
#endif
/* P21: when S takes FENCED up, and which one: R says it again with the ledger of that time. */
#ifdef NO_WAIT_FOR_S_FENCE
#define S_MAY_TAKE_UP(l) OVER(sSt[l])
#else
#define S_MAY_TAKE_UP(l) S_FENCED(l)
#endif

/* P18: nothing of an incarnation is under way any more. That is what T_packet, T_pcie and T_dead stand for. */
#ifdef NO_HOLD_PACKET
#define GONE(l) NIC_QUIET(l)
#else
#define GONE(l) (!fab[l] && !PAIRS_IN_FABRIC(l) && NIC_QUIET(l))
#endif

/* P35: what S says that a dead incarnation may still bring, without what R had when it closed it. */
#ifdef WORD
#define NOW(q, l) (S_LIVE(q, l) -> BIT(q) : 0)
#if NQ > 6
#define LIVE_NOW(l) (NOW(0, l) | NOW(1, l) | NOW(2, l) | NOW(3, l) | NOW(4, l) | NOW(5, l) | NOW(6, l) | NOW(7, l))
#elif NQ > 4
#define LIVE_NOW(l) (NOW(0, l) | NOW(1, l) | NOW(2, l) | NOW(3, l) | NOW(4, l) | NOW(5, l))
#else
#define LIVE_NOW(l) (NOW(0, l) | NOW(1, l) | NOW(2, l) | NOW(3, l))
#endif
#define STOPS(l) live[l] = LIVE_NOW(l);
#ifdef NO_LIVE_PAIR /* a call that fails has taken nothing */
#define STOPS_BEFORE(l) STOPS(l)
#define STOPS_BEHIND(l)
#else
#define STOPS_BEFORE(l)
#define STOPS_BEHIND(l) STOPS(l)
#endif
#if defined(NO_LIVE_PARTS)
#define MAY_COME(l) 0
#elif defined(NO_LIVE_FROZEN) /* as S sees it now */
#define MAY_COME(l) (LIVE_NOW(l) & ~snap[l])
#elif defined(NO_LIVE_LEDGER) /* without what R has now */
#define MAY_COME(l) (live[l] & ~led)
#else
#define MAY_COME(l) (live[l] & ~snap[l])
#endif
#define NEEDLESS(m, l) ((hold[l] & BIT(m)) && !(MAY_COME(l) & PARTS(m)))
#if NM > 3
#define IS_NEEDLESS(l) (NEEDLESS(0, l) || NEEDLESS(1, l) || NEEDLESS(2, l) || NEEDLESS(3, l))
#elif NM > 2
#define IS_NEEDLESS(l) (NEEDLESS(0, l) || NEEDLESS(1, l) || NEEDLESS(2, l))
#else
#define IS_NEEDLESS(l) (NEEDLESS(0, l) || NEEDLESS(1, l))
#endif
#else
#define STOPS(l)
#define STOPS_BEFORE(l)
#define STOPS_BEHIND(l)
#endif

/* P23: R begins a new incarnation when the old one is settled. */
#ifdef NO_SETTLED
#define R_MAY_OPEN(l) (rSt[PREV(l)] == FENCED && !R_SOFT(PREV(l)))
#elif defined(NO_WAIT_FOR_HOLD) /* ... or when only its holds are not over */
#define R_MAY_OPEN(l) (rSt[PREV(l)] == FENCED && rSettled[PREV(l)])
#else
#define R_MAY_OPEN(l) (rSt[PREV(l)] == FENCED && !R_SOFT(PREV(l)) && HOLD_OVER(PREV(l)) && rSettled[PREV(l)])
#endif
/* S may not have heard the answer for an incarnation that never stood at R, and then never will. */
#define live_before(q) S_LIVE(q, PREV(l))
#define S_MAY_OPEN(l) (!S_GONE && S_TAKES_BACK(l) && S_FENCED(PREV(l)) && !S_SOFT(PREV(l)) && (S_NOT_ASKED || sSettled[PREV(l)] || !ANY_PART(live_before)))
#ifdef NO_SETTLED_AT_S
#define S_NOT_ASKED 1
#else
#define S_NOT_ASKED 0
#endif
/* P12: what S does with the ring that a new incarnation shares with the one before. */
#if defined(RINGS) && !defined(NO_RING_CLEAR)
#define CLEAR_RING(l) ; ring[RING(l)] = 0; word[ACK_WORD(l)] = 0
#else
#define CLEAR_RING(l)
#endif
#ifdef RINGS
#define S_LOOKS
#else
#define S_LOOKS s_progress(todo, where, pick)
#endif
/* P24: S may post when R has said OPEN_UP. */
#ifdef NO_OPEN_UP
#define STANDS_AT_R(l) 1
#else
#define STANDS_AT_R(l) (rSt[l] == UP || (OVER(rSt[l]) && !rSettled[l]))
#endif
/* R answers for the present incarnation only. */
#define R_STILL_AT(l) (!HAS_NEXT(l) || rSt[NEXT(l)] == NONE)

/* P19: when S takes a soft fence of its own for a hard one. */
#if defined(NO_SENDER_HOLD)
#define S_RELEASES(l) 1
#elif defined(NO_SENDER_HOLD_SOFT)
#define S_RELEASES(l) (sSettled[l])
#else
#define S_RELEASES(l) (sSettled[l] && (!R_SOFT(l) || GONE(l)))
#endif

/* P13: when S calls a send done. */
#ifdef NO_OWN_REQUESTS
#define OWN_REQUEST(q, l) 0
#else
#define OWN_REQUEST(q, l) (wr[l] & PARTS(OF(q)))
#endif
#ifdef NO_E2E_ACK
#define EARLY(l) early = early | cqe[l];
#else
#define EARLY(l)
#endif

/* P15: S asks about a path as long as something on it is not acknowledged by R itself; R, when a control write is not confirmed. */
#if defined(ONLY_S)
#define SEES_R(l) 0
#elif defined(ONLY_R)
#define SEES_S(l) 0
#elif defined(WATCH)
#ifdef NO_WATCHDOG
#define SEES_S(l) ((wr[l] & ~cqe[l]) && (OTHER_UP(sSt) || SPARE_S))
#else
#define live_here(q) S_LIVE(q, l)
#ifdef ACCOUNT
#define SEES_S(l) (((wr[l] & ~cqe[l]) || ANY_PART(live_here)) && (OTHER_UP(sSt) || SPARE_S))
#else
#define SEES_S(l) (ANY_PART(live_here) && (OTHER_UP(sSt) || SPARE_S))
#endif
#endif
/* ... but the last path is never given up for its silence */
#if NL > 3
#define OTHER_UP(st) ((l != 0 && st[0] == UP) || (l != 1 && st[1] == UP) || (l != 2 && st[2] == UP) || (l != 3 && st[3] == UP))
#elif NL > 2
#define OTHER_UP(st) ((l != 0 && st[0] == UP) || (l != 1 && st[1] == UP) || (l != 2 && st[2] == UP))
#else
#define OTHER_UP(st) (st[1 - l] == UP)
#endif
/* ... unless a drained one is over at both ends, and would return in its place. R knows by the word that it was drained. */
#if defined(DRAIN) && !defined(NO_DRAIN_SPARE)
#define SPARE_S (drainEnd[0] && sSt[0] == FENCED && sSettled[0] && sSt[NP] == NONE)
#define SPARE_R (drainEnd[0] && drainR == 1 && rSt[0] == FENCED && rSettled[0] && rSt[NP] <= OPENING) /* begun before it heard the word, and refused */
#else
#define SPARE_S 0
#define SPARE_R 0
#endif
#define SEES_R(l) (lostCtl[l] && (OTHER_UP(rSt) || SPARE_R))
#endif
#ifndef SEES_S
#define SEES_S(l) 1
#endif
#ifndef SEES_R
#define SEES_R(l) 1
#endif

/* May another path carry what is left if @l breaks? Else there is no such fault here: with no path both ends give up (P22). */
#ifdef DRAIN /* S may be about to end a drained one */
#define LIVES_ON(x) (x < NL && x != l && !broke[x] && rSt[x] == UP && sSt[x] == UP && (!OF_DRAINED(x) || drainS == 2))
#else
#define LIVES_ON(x) (x < NL && x != l && !broke[x] && (x < NP || (rSt[x] == UP && sSt[x] == UP)))
#endif
#ifdef WAYS
#define ELSEWHERE(x) (x % NP != l && LIVES_ON(x))
#if NL > 3
#define ANOTHER_NIC (ELSEWHERE(0) || ELSEWHERE(1) || ELSEWHERE(2) || ELSEWHERE(3) || (CAN_RETURN && (NL - 1) % NP != l))
#else
#define ANOTHER_NIC (ELSEWHERE(0) || ELSEWHERE(1) || ELSEWHERE(2) || (CAN_RETURN && (NL - 1) % NP != l))
#endif
#define BORN(l) ; broke[l] = gone[PREV(l)]; gone[l] = gone[PREV(l)] /* on a NIC that is dead by then */
#else
#define BORN(l)
#endif
#if NL == NP
#define CAN_RETURN 0
#elif defined(WAYS) && defined(WATCH) /* likewise: what breaks last does not end */
#define CAN_RETURN 0
#elif defined(WAYS)
#define CAN_RETURN (rSt[NL - 1] == NONE && !gone[(NL - 1) % NP])
#elif defined(WATCH) && NP == 2 && NL == 4 /* the last path does not end by silence: it is the other one that must return */
#define CAN_RETURN (l < NP && rSt[3 - l] < DOWN && sSt[3 - l] < DOWN && !broke[3 - l])
#else
#define CAN_RETURN (rSt[NL - 1] == NONE)
#endif
#ifdef GIVE_UP
#define ANOTHER 1
#elif NL > 3
#define ANOTHER (LIVES_ON(0) || LIVES_ON(1) || LIVES_ON(2) || LIVES_ON(3) || CAN_RETURN)
#elif NL > 2
#define ANOTHER (LIVES_ON(0) || LIVES_ON(1) || LIVES_ON(2) || CAN_RETURN)
#else
#define ANOTHER (LIVES_ON(0) || LIVES_ON(1) || CAN_RETURN)
#endif
/* May an exchange for a new incarnation be given up? The one after it needs the other path's incarnation to end, which as the last one it may not. */
#ifdef WATCH
#define GIVES_UP (LIVES_ON(0) || LIVES_ON(1))
#else
#define GIVES_UP ANOTHER
#endif

/* Can it happen at all? Each of these is asked for by a configuration that must fail. */
#ifdef REACH_RETRANSMIT         /* a part is posted again */
#define SEEN_REPLAY assert(it_happens)
#elif defined(REACH_REWRITE) /* ... whose bytes are there: its record was lost */
#define SEEN_REPLAY assert(it_happens || !(written & BIT(idx)))
#elif defined(REACH_OVERLAP) /* ... while another incarnation is over and not settled */
#define SEEN_REPLAY assert(it_happens || !UNSETTLED(0) && !UNSETTLED(1) && !UNSETTLED(2))
#define UNSETTLED(x) (x != l && OVER(sSt[x]) && !sSettled[x])
#else
#define SEEN_REPLAY skip
#endif
#ifdef REACH_RETURN         /* data arrives over an incarnation that is not the first of its path */
#define SEEN_ARRIVAL(l) assert(it_happens || !IS_NEXT(l))
#else
#define SEEN_ARRIVAL(l) skip
#endif
#ifdef REACH_HOLD           /* a hold ends by time, of a message that is complete */
#define SEEN_HOLD_END(l) assert(it_happens || !(hold[l] & BIT(rdone)) || !FULL(led, rdone))
#else
#define SEEN_HOLD_END(l) skip
#endif
#ifdef REACH_FREE           /* S's word ends the hold of a message that is complete, and others stay held */
#define SEEN_FREE(l) assert(it_happens || !hold[l] || (hold[l] & BIT(rdone)) || !FULL(led, rdone));
#else
#define SEEN_FREE(l)
#endif
#ifdef REACH_LOSS           /* R's NIC dies with what it has acknowledged */
#define SEEN_LOSS(l) assert(it_happens || !cqe[l])
#else
#define SEEN_LOSS(l) skip
#endif
#ifdef REACH_DEATH          /* a NIC dies under an incarnation whose way is broken, with what it has acknowledged there */
#define SEEN_DEATH(l) assert(it_happens || !broke[l] || !nic[l])
#elif defined(REACH_DEATH_NEXT) /* ... under one that came after a way broke */
#define SEEN_DEATH(l) assert(it_happens || l + NP >= NL || !nic[l + NP])
#else
#define SEEN_DEATH(l) skip
#endif
#ifdef REACH_HALF           /* a driver takes the data of a part and refuses its record */
#define SEEN_HALF(l) assert(it_happens);
#else
#define SEEN_HALF(l)
#endif
#ifdef REACH_BAD            /* R finds a record that is not the completion's */
#define SEEN_BAD(l) assert(it_happens);
#else
#define SEEN_BAD(l)
#endif
#ifdef REACH_DROP           /* an incarnation is closed with parts whose read is not back */
#define SEEN_DROP(l) assert(it_happens || !unread[l]);
#else
#define SEEN_DROP(l)
#endif
#ifdef REACH_DRAIN          /* S ends a drained incarnation with a CTS under way on it that S needs */
#define SEEN_DRAIN(l) assert(it_happens || !(ctsFab[l] & BIT(seen)));
#else
#define SEEN_DRAIN(l)
#endif
