"""The views: included resources are read with the page, pages can be uncounted, and filters are those of
django-filter."""

# The library declares with lists and dictionaries of classes.
# ruff: noqa: RUF012

from typing import Any

from django.core.paginator import Page, Paginator
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.decorators import method_decorator
from django.utils.functional import cached_property
from django_filters import rest_framework as filters
from rest_framework.response import Response
from rest_framework_json_api.pagination import JsonApiPageNumberPagination
from rest_framework_json_api.views import ModelViewSet, RelationshipView

from people import serializers
from people.models import Computer, Group, User

READS = ("list", "retrieve")


class UncountedPaginator(Paginator):
    """A paginator that reads one row more to find a next page, and does not count pages."""

    @cached_property
    def count(self) -> int:
        return 2**62

    def page(self, number: Any) -> Page:
        number = self.validate_number(number)
        first = (number - 1) * self.per_page
        rows = list(self.object_list[first : first + self.per_page + 1])
        page = self._get_page(rows[: self.per_page], number, self)
        page.has_next = lambda: len(rows) > self.per_page
        return page


class Pages(JsonApiPageNumberPagination):
    """The library's pages of any size, counted unless `page[total]=none` is requested."""

    max_page_size = None

    def paginate_queryset(self, queryset: QuerySet, request: Any, view: Any = None) -> list[Any] | None:
        self.is_counted = request.query_params.get("page[total]") != "none"
        if not self.is_counted:
            self.django_paginator_class = UncountedPaginator
        return super().paginate_queryset(queryset, request, view)

    def get_paginated_response(self, data: Any) -> Response:
        if self.is_counted:
            return super().get_paginated_response(data)
        number, page = self.page.number, self.page
        links = {
            "first": self.build_link(1),
            "next": self.build_link(number + 1 if page.has_next() else None),
            "prev": self.build_link(number - 1),
        }
        return Response({"results": data, "links": links})


class Users(filters.FilterSet):
    # A join would return a user once for each matching computer.
    computers__serial__startswith = filters.CharFilter(method="own")

    class Meta:
        model = User
        fields = {"group__name": ("exact",), "age": ("gte",)}

    def own(self, queryset: QuerySet, name: str, value: str) -> QuerySet:
        own = Computer.objects.filter(owner=OuterRef("pk"), serial__startswith=value)
        return queryset.filter(Exists(own))


class View(ModelViewSet):
    """Subclasses have `by_include`, the serializers for reads, and `serializer_class` for writes."""

    pagination_class = Pages

    def get_serializer_class(self) -> Any:
        include = self.request.query_params.get("include", "")
        if self.action in READS or include:
            return self.by_include.get(include, self.serializer_class)
        return self.serializer_class


class UserView(View):
    queryset = User.objects.order_by("id")
    serializer_class = serializers.UserWithGroup
    by_include = {
        "": serializers.UserSerializer,
        "computers": serializers.UserWithComputers,
        "group": serializers.UserWithGroup,
        "computers,group": serializers.UserWithBoth,
        "group,computers": serializers.UserWithBoth,
    }
    select_for_includes = {"group": ["group"]}
    filterset_class = Users
    ordering_fields = ("id", *serializers.USER)

    def get_queryset(self) -> QuerySet:
        users = super().get_queryset()
        group = self.kwargs.get("group_pk")
        return users if group is None else users.filter(group=group)


class GroupView(View):
    queryset = Group.objects.order_by("id")
    serializer_class = serializers.GroupSerializer
    by_include = {"": serializers.GroupSerializer, "users": serializers.GroupWithUsers}
    ordering_fields = ("id", "name")


class ComputerView(View):
    queryset = Computer.objects.order_by("id")
    serializer_class = serializers.ComputerWithOwner
    by_include = {
        "": serializers.ComputerSerializer,
        "owner": serializers.ComputerWithOwner,
        "owner.group": serializers.ComputerWithOwnerAndGroup,
    }
    select_for_includes = {"owner": ["owner"], "owner.group": ["owner__group"]}
    ordering_fields = ("id", *serializers.COMPUTER)


@method_decorator(transaction.atomic, name="patch")
class UserRelationships(RelationshipView):
    """The library replaces a to-many row by row. Its users must decide whether this is one transaction."""

    queryset = User.objects.all()
